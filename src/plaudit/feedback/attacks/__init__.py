"""Whether a policy can be led astray, beside whether it refuses what is harmless."""
