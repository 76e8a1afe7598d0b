"""People whom a panel sent: when they are through, they are shown the code that the panel pays them by."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from plaudit.collect.desk import is_through, person_row
from plaudit.collect.tables import panel, participant
from plaudit.collect.transaction import Transaction

_PANEL = (
    select(panel.c.code, panel.c.tasks)
    .join(participant, participant.c.panel == panel.c.hash)
    .where(participant.c.project == bindparam("p"), participant.c.pseudonym == bindparam("n"))
)


def completion_code(look: Transaction, name: str, person: str) -> str | None:
    """The code of a person's panel, once the person is through; None before, and for everybody else.

    Through is who answered as many as the invite says, or else whoever answered something and would be given
    nothing more: others who hold the last tasks are not waited for. The suspended and those who did not
    qualify are shown none.
    """
    found = look.connection.execute(_PANEL, {"p": name, "n": person}).first()
    row = person_row(look, name, person)
    if found is None or row.answered == 0 or row.standing in ("suspended", "failed"):
        return None
    is_enough = is_through(look, name, row) if found.tasks is None else row.answered >= found.tasks
    return found.code if is_enough else None
