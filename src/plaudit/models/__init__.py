"""Hugging Face folders in and out, and log-probs from them."""
