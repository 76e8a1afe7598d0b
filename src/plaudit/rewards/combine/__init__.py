"""Rewards made of rewards: sums, ensembles, cascades."""
