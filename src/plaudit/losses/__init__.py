"""Pure functions on tensors: one file, one chapter; ``plaudit.losses.dpo`` finds each by its name."""

from plaudit.index import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
