"""What is claimed of the algorithms, one file a subject; each claim computes its own evidence."""
