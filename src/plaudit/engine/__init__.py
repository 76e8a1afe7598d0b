"""The step that every trainer calls, the trainers, and what a run leaves behind."""
