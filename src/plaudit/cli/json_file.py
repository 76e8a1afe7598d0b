"""What a command found, as a file for programs: ``--json FILE``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plaudit.errors import UserError


def write_json(path: Path, said: dict[str, Any]) -> None:
    """The file, written as a whole or not at all."""
    from plaudit.sources.atomic import AtomicFile

    try:
        with AtomicFile(path) as file:
            file.stream.write((json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode())
    except OSError as error:
        raise UserError(f"--json {path}: cannot be written ({error.strerror})") from error
