"""plaudit: from a human's click to a better language model, each step proven.

The public names stand in ``__init__.pyi``; each is fetched from its home when it is first used, so that
``import plaudit`` and ``plaudit --help`` do not wait for torch.
"""

from plaudit.index import attach as _attach

__version__ = "0.2.0"

__getattr__, _names, __all__ = _attach(__name__, __file__)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
