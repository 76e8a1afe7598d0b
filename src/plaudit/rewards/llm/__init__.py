"""Rewards that a language model says in words: generative judges, rankers, critics."""
