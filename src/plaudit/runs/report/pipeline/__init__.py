"""The page of a pipeline: what was done, what came of it, and what to doubt."""
