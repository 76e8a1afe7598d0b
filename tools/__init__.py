"""The small checkers behind ./check; each is `python -m tools.<name> [root]`."""
