"""How a process of the sandbox begins: it reads what it is to do, confines itself, and says so."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from typing import Any

from plaudit.rewards.inside.guard import Walls, confine
from plaudit.rewards.inside.peer import Peer, Serve

READY = b"ready"
"""Said once the walls stand, on a line of its own that is closed before a stranger's code is begun."""


def begin() -> dict[str, Any]:
    """What this process is to do; on return it is confined."""
    with open(int(sys.argv[1]), "rb") as file:
        told: dict[str, Any] = json.load(file)
    walls: dict[str, Any] = {field.name: told[field.name] for field in fields(Walls)}
    walls["readable"] = tuple(told["readable"])
    confine(Walls(**walls))
    os.write(told["ready"], READY)
    os.close(told["ready"])
    return told


def line(told: dict[str, Any], serve: Serve) -> Peer:
    """The line to the other process."""
    return Peer(os.fdopen(told["reads"], "rb"), os.fdopen(told["writes"], "wb"), serve)
