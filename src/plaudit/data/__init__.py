"""Records of human feedback: prompts, completions and judgements, read from files of rows and written back.

Bad rows are named and put aside. ``plaudit --help`` imports this without torch.
"""

from plaudit.data.fields import Problem
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.formats.registry import FORMATS, format_named, formats_table
from plaudit.data.read import ReadResult, open_rows, read_records
from plaudit.data.write import WriteResult, write_records

__all__ = [
    "FORMATS",
    "Problem",
    "ReadOptions",
    "ReadResult",
    "WriteResult",
    "format_named",
    "formats_table",
    "open_rows",
    "read_records",
    "write_records",
]
