"""The embedded world, what is proven in it, and exercises that show what goes wrong in RLHF."""
