"""How the public data sets and the usual tools lay out their rows: one reader a layout."""
