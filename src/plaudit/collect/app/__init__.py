"""The label store over HTTP: what may be asked, by whom, and how it is served."""
