"""Models that see pictures, and a world of pictures to teach and test them in."""
