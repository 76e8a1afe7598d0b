"""The embedded world: a small valley whose facts, questions and true preferences are known."""
