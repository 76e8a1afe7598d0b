"""Text to image: from captioned pictures, and from people's preferences among pictures, to a better model."""
