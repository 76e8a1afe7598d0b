"""The docs as a site: pages, API reference, algorithms and papers as Markdown, which Sphinx turns into HTML."""
