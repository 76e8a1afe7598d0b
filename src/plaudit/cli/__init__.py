"""One verb a file; each a few lines over a recipe."""
