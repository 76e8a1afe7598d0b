"""What runs within the processes of the sandbox: the standard library only, and nothing else of plaudit."""
