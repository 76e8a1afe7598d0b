"""Verbs of models that judge, revise and attack."""
