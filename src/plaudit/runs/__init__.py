"""Pipelines, what they will cost, and the pages that they leave."""
