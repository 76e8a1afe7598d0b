"""plaudit: from a human's click to a better language model, each step proven."""

__version__ = "0.1.0"
