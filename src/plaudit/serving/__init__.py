"""Answers drawn by servers: a fleet, the weights that it is sent, and the proof that it uses them."""
