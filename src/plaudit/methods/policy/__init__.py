"""Policy optimisation: PPO, GRPO and their relatives as rows over one objective."""
