"""How much better than expected a completion or a token was; the losses keep it free of gradient."""

from plaudit.index import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
