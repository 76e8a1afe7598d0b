"""Arithmetic that every loss shares: under a mask, within a group, over a vocabulary."""
