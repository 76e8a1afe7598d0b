"""Rewards that a trained model gives: scalar heads, implicit rewards, steps, groups."""
