"""The pages of the lab: one of each exercise, and one over all of them."""
