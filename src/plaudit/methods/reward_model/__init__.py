"""Training reward models: scalar heads, generative judges, critics, group preferences."""
