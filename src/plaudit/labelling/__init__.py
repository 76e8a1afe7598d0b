"""Where feedback is made: a store in which every task, answer and exclusion is an event, and its API."""
