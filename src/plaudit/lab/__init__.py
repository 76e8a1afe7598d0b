"""The embedded world: a valley whose truths are known, a base model, and simulated people."""
