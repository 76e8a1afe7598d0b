"""A run on disk: what a checkpoint holds, and how it is written so that a crash never leaves half of one."""
