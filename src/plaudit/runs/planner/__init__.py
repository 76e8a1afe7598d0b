"""What a run will cost, before it begins: arithmetic, memory, time and disk."""
