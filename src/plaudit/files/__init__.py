"""Reading and writing files safely: atomic writes, locks, JSON lines; nothing here needs torch."""
