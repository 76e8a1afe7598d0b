"""Passwords: which are taken, and what is stored of them (Argon2id, with the parameters of RFC 9106).

Length is the only rule about letters: rules of composition make passwords that are easy to guess and hard to
remember. Nothing is cut off.
"""

from __future__ import annotations

import threading
import unicodedata
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from plaudit.labelling.refusals import FieldError
from plaudit.labelling.texts import checked_text

FEWEST = 8
"""The fewest characters of a password."""
MOST = 200
"""The most; a longer one is refused and never cut."""

GATE = threading.Lock()
"""Held from counting failures to writing the next one: many guesses at once would all be under the limit. It
also keeps a flood of sign-ins from taking 64 MiB each."""
_HASHER = PasswordHasher()


def name_key(name: str) -> str:
    """A name as it is compared at sign-in: capitals, spaces and ways of writing a letter play no part.

    >>> name_key("  Ada  Lovelace ") == name_key("ada lovelace")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def checked_password(password: object) -> str:
    """A new password, or a refusal that never repeats it."""
    words = checked_text("password", password, most=MOST, empty=False)
    if len(words) < FEWEST:
        raise FieldError(
            field="password", found=f"{len(words)} characters", expected=f"{FEWEST} to {MOST} characters"
        )
    return words


def hash_password(password: str) -> str:
    """What is stored of a password."""
    return _HASHER.hash(_one_spelling(password))


def fits(stored: str | None, password: str) -> bool:
    """Whether a password is the stored one; with nothing stored it takes just as long to say no."""
    # Made in both cases, as it is slow the first time.
    decoy = _decoy()
    try:
        return _HASHER.verify(stored or decoy, _one_spelling(password)) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


@lru_cache(maxsize=1)
def _decoy() -> str:
    return _HASHER.hash("")


def _one_spelling(password: str) -> bytes:
    # The same keys make an accented letter of one code point on one machine and of two on another.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "replace")
