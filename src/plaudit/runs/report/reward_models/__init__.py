"""The page of an evaluation of reward models."""
