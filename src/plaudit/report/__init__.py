"""Reports of whole pipelines, each on one page that stands alone; and runs beside each other."""
