"""Files of rows become records; bad rows are named and put aside. Never imports torch."""

from plaudit.sources.layouts import LAYOUTS, ReadOptions, layout_named, layouts_table
from plaudit.sources.problems import Problem
from plaudit.sources.read import Reading, open_rows, read_records
from plaudit.sources.write import Written, write_records

__all__ = [
    "LAYOUTS",
    "Problem",
    "ReadOptions",
    "Reading",
    "Written",
    "layout_named",
    "layouts_table",
    "open_rows",
    "read_records",
    "write_records",
]
