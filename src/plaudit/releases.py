"""The releases of torch and transformers with which this version was tried, and a word where newer ones run.

A newer release may call things by other names, or compute other numbers. Nobody is kept from using it, but
a run says so at its start, and an unexpected error at its end.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from plaudit import __version__
from plaudit.errors import UserError

TRIED: Mapping[str, str] = {"torch": "2.13.0", "transformers": "5.24.0"}
"""The newest releases that all tests have run with, as in constraints.txt."""


def installed_version(library: str) -> str | None:
    """The release of a library that is installed here; None where there is none."""
    from importlib import metadata

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def untried_releases() -> tuple[str, ...]:
    """A sentence for each library of `TRIED` that is newer here."""
    from packaging.version import Version

    installed = {library: installed_version(library) for library in TRIED}
    return tuple(
        f"{library} {version} is newer than {TRIED[library]}, with which plaudit {__version__} was tried"
        for library, version in installed.items()
        # Without what stands behind a plus, which says how it was built: 2.13.0+cpu is 2.13.0.
        if version and Version(Version(version).public) > Version(TRIED[library])
    )


@contextmanager
def untried_releases_named() -> Iterator[None]:
    """An unexpected error says, beneath its traceback, which releases were never tried."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        for sentence in untried_releases():
            # A run inside a command passes through here twice.
            if sentence not in getattr(error, "__notes__", ()):
                error.add_note(sentence)
        raise
