"""Models that judge answers, revise them, and lead others astray."""
