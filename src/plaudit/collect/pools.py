"""Pools of simulated people that answer in a label store, each by an invite of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.files import atomic
from plaudit.wings import everything, load, offered

if TYPE_CHECKING:
    from plaudit.collect.store import LabelStore

_INVITE_DAYS = 365


def annotator_pools() -> Mapping[str, Callable[[], Sequence[object]]]:
    """The pools of simulated people that some wing brings, by name; none where no wing does."""
    pools = everything("offers").get("annotator_pools")
    return {} if pools is None else load(pools)


def let_pool_answer(store: LabelStore, project: str, pool: str, *, seed: int, invites: Path) -> None:
    """Let a pool answer until there is nothing left for it.

    Its invite is kept in the folder ``invites``: by it the same people come back.
    """
    # Here and not above: the server's packages are an extra, and other stages do not need them.
    from plaudit.collect.app.server import serve_in_background

    invite = _own_invite(store, project, pool, invites)
    with serve_in_background(store) as server:
        offered("annotate")(server.url, invite, pool, seed=seed)


def _own_invite(store: LabelStore, project: str, pool: str, invites: Path) -> str:
    # The invite of a pool to a project: the one that it came by before, or a new one.
    path = invites / f"{project}.{pool}"
    if path.exists():
        return path.read_text("utf-8").strip()
    from plaudit.collect.people import make_invite

    uses = len(annotator_pools()[pool]())
    secret = store.write(make_invite, project, uses=uses, days=_INVITE_DAYS, actor="plaudit")
    atomic.make_folder(invites)
    # Whoever reads a secret could answer as one of the pool.
    invites.chmod(0o700)
    atomic.write_text(path, f"{secret}\n")
    return secret
