"""Rounds of drawing and learning at any number of GPUs, simulated: ``python -m benchmarks.simulator``."""
