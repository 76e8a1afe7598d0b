"""Rewards that a rule decides: exact answers, mathematics, code that passes its tests."""
