"""How good a policy is: beside others, in what it says and how, and how far it went for it."""

WRITTEN = "written"
"""The word for the answers that the rows of the prompts hold themselves, as a contestant."""
