"""Whether a policy can be led astray, and whether it refuses what is harmless: none of it without the other."""
