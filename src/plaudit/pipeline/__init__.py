"""From rows to a better policy and its report in one command: stages that are kept, restarted and traced."""
