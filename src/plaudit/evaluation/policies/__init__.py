"""How good a policy is: beside others, in what it says and how, and how far it went for it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from plaudit.errors import UserError

WRITTEN = "written"
"""The word for the answers that the rows of the prompts hold themselves, as a contestant."""
POLICY = "policy"
"""The word for another answer of the very model that is compared."""
WORLD = "world"
"""The word for the embedded world's prompts and for their truth."""
WORLD_PROMPTS = 200
"""How many prompts of the world are used, unless another number is given."""
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWord:
    name: str
    folder: str
    system: str | None = None
    shots: str | None = None

    @classmethod
    def parse(cls, word: str) -> "PolicyWord":
        """The parts of ``NAME=DIR,system=TEXT,shots=FILE``.

        >>> PolicyWord.parse("kind=base,system=Be kind, and brief.").system
        'Be kind, and brief.'
        """
        # Only at a comma that begins a part: a system's text may hold others.
        first, *parts = re.split(r",(?=(?:system|shots)=)", word)
        name, equals, folder = first.partition("=")
        if not (name and equals and folder):
            raise UserError(f"--policy {word}: expected NAME=DIR, then ,system=TEXT or FILE and ,shots=FILE")
        given = dict(part.split("=", 1) for part in parts)
        if len(given) < len(parts):
            raise UserError(f"--policy {name}: system and shots may be given once each")
        if empty := [key for key, value in given.items() if not value.strip()]:
            raise UserError(f"--policy {name}: {empty[0]} is empty; say what it is, or leave it out")
        return cls(name=name, folder=folder, **given)

    @property
    def system_file(self) -> Path | None:
        """The file that holds the system's turn; None where the words themselves were given."""
        word = self.system or ""
        return Path(word) if word and "\n" not in word and len(word) < 256 and Path(word).is_file() else None

    @property
    def inputs(self) -> dict[str, str]:
        files = {"shots": self.shots, "system": self.system if self.system_file else None}
        return {"folder": self.folder} | {part: word for part, word in files.items() if word is not None}

    def __str__(self) -> str:
        parts = [f"{key}={value}" for key in ("system", "shots") if (value := getattr(self, key)) is not None]
        return ",".join([f"{self.name}={self.folder}", *parts])
