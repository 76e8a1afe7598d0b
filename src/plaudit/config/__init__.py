"""Settings as frozen dataclasses: their names, their types, and the YAML that sets them."""
