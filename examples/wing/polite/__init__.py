"""A wing of plaudit: thanks in demonstrations."""
