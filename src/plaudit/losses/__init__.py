"""Pure functions on tensors: one file, one chapter."""
