"""Speed and memory, side by side with another library, on the same work; see README.md."""
