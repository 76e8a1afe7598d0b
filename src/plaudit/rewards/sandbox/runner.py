"""The process that a model's program runs in: as a program of its own, or to be called by an examiner.

It reads what it is to do, confines itself, and says so. It holds nothing worth stealing: no test, no expected
value. It may say what it likes; what is true of its words is decided elsewhere.
"""

import json
import os
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

from plaudit.rewards.sandbox.confine import Confinement, confine
from plaudit.rewards.sandbox.peer import Peer, Serve
from plaudit.rewards.sandbox.plain import OPERATIONS

READY = b"ready"
"""Said once the walls stand, on a line of its own that is closed before a stranger's code is begun."""


def start_confined() -> dict[str, Any]:
    """What this process is to do; on return it is confined."""
    # By its inherited number, since the file has no name; closed before a stranger's code could read it.
    with open(int(sys.argv[1]), "rb") as file:
        setup: dict[str, Any] = json.load(file)
    walls: dict[str, Any] = {field.name: setup[field.name] for field in fields(Confinement)}
    walls["readable"] = tuple(setup["readable"])
    confine(Confinement(**walls))
    os.write(setup["ready"], READY)
    os.close(setup["ready"])
    return setup


def connect_peer(setup: dict[str, Any], serve: Serve, *, trusts: bool) -> Peer:
    return Peer(os.fdopen(setup["reads"], "rb"), os.fdopen(setup["writes"], "wb"), serve, trusts=trusts)


def module_names(name: str) -> dict[str, Any]:
    """The names of a new module to run code in, found by what looks for it, as ``dataclass`` does."""
    sys.modules[name] = ModuleType(name)
    return vars(sys.modules[name])


PROGRAM_MODULE = "answer"
"""What the program is called when it is called by an examiner, so that its own main part does not run."""


def main() -> None:
    """Run the program of the setup file: alone, or as a server for an examiner's calls."""
    setup = start_confined()
    # A program that reads its arguments would otherwise find those of the bootstrap.
    sys.argv[:] = ["answer.py"]
    code: str = setup["code"]
    if "reads" not in setup:
        # Globals of its own, as a script has: names of this module must not shadow or feed the program's.
        exec(compile(code, "answer.py", "exec"), module_names("__main__"))
        return
    namespace = module_names(PROGRAM_MODULE)

    def serve(operation: str, args: list[object], kwargs: dict[str, object]) -> object:
        match operation, args:
            case "load", []:
                exec(compile(code, "answer.py", "exec"), namespace)
                return [name for name in namespace if not name.startswith("__")]
            case "global", [str(name)]:
                return namespace[name]
            case _:
                return OPERATIONS[operation](*args, **kwargs)

    connect_peer(setup, serve, trusts=True).serve()
