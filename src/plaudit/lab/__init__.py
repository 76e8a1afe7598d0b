"""The reward-hacking lab: exercises that show what goes wrong in RLHF, each a pipeline with claims."""
