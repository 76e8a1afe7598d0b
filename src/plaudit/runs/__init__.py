"""Pipelines, what they will cost, and the pages that they leave.

What other wings and packages may import of it stands in ``__init__.pyi``: `plaudit.runs.StageKind` and what
an author of stages, or of a section of their page, needs beside it.
"""

from plaudit.index import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
