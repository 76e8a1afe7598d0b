"""The docs as a site: pages, API reference, algorithms and papers as Markdown, for Sphinx to make HTML of."""
