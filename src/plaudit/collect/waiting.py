"""A wait for people: what is missing, where it is asked, and how to go on; without a database at hand."""

import shlex
from dataclasses import dataclass
from importlib.util import find_spec

from plaudit.errors import UserError, WaitingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    store: str
    """The store, never with a password."""
    project: str
    missing: int
    wanted: int
    """How many were asked for; more where people are divided."""
    tasks: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is missing, and where.

        >>> Wait(store="labels.db", project="helpful", missing=12, wanted=500).sentence
        '12 of 500 labels are missing in project helpful of labels.db'
        """
        return f"{self.missing} of {self.wanted} labels are missing in project {self.project} of {self.store}"

    @property
    def facts(self) -> dict[str, str | int]:
        return {
            "store": self.store,
            "project": self.project,
            "missing": self.missing,
            "wanted": self.wanted,
            "sentence": self.sentence,
        }

    @property
    def advice(self) -> str:
        store, project = shlex.quote(self.store), shlex.quote(self.project)
        return (
            f"`plaudit collect serve --store {store}` lets people answer, and `plaudit collect invite "
            f"--store {store} --project {project}` lets one of them in"
        )


def waiting_error(wait: Wait) -> WaitingError:
    """The error of somebody who cannot go on without these labels."""
    return WaitingError(f"{wait.sentence}. {wait.advice}. Then give the same command again", wait)


def refuse_without_database(*packages: str) -> None:
    """Complain, before any work is done, where the packages of a label store, or these, are not installed."""
    for name in ("sqlalchemy", *packages):
        # Looked for and not loaded, which takes its time and may not be needed for hours.
        if find_spec(name) is not None:
            continue
        raise UserError(f'people answer in a label store, which needs {name}: pip install "plaudit[collect]"')
