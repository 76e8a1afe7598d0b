"""Verbs of the embedded world."""
