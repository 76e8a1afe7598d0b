"""report.html in parts: read a run folder, put it into words and curves, write it as markup."""
