"""What answers are worth: learned, written down as rules, or put together from several."""
