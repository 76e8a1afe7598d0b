"""Models on servers as judges, and how any judge is asked in both orders."""
