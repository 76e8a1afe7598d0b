"""One file an exercise: a pipeline, what to look at in its results, and the claims that decide it."""
