"""Loops of generating, judging and training: best-of-n, rejection sampling, online DPO, rounds of RLHF."""
