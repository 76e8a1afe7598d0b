"""From rows to a better policy and its report in one command: stages, reused, resumed and traced."""
