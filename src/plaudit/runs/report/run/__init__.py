"""The page of a training run: what lies in its folder, and what the page shows of it."""
