"""Files of rows become records; bad rows are named and put aside. Never imports torch."""
