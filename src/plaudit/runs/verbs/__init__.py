"""Verbs of pipelines, plans and reports."""
