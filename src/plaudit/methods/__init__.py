"""Named algorithms and whole runs: rows filled in."""
