"""Text becomes tokens and masks here, once; nothing downstream infers a mask from ids."""
