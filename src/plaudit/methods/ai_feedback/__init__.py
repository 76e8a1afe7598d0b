"""Rows by models: answers that are judged, revised, and attacked."""
