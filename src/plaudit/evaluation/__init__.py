"""How good a model is, judged by what was never optimised, and how sure one can be of it."""
