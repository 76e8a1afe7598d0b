"""The page of a reward model's evaluation."""
