"""Preferences without words: a pendulum learns to stand from comparisons of short clips of what it does."""
