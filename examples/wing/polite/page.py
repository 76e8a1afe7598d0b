"""A section of the page of a pipeline: how many demonstrations thank."""

import json
from pathlib import Path

from plaudit.runs import Cell, PageSection, StageFindings, Table, percent


def read(folder: Path) -> StageFindings:
    """What the page shows of a stage that left ``thanks.json`` in its folder."""
    found = json.loads((folder / "thanks.json").read_text("utf-8"))
    share = percent(found["thankful"] / found["rows"]) if found["rows"] else "no rows"
    cells = (Cell(text=str(found["thankful"])), Cell(text=share))
    table = Table(
        caption="Of all demonstrations", columns=("that thank", "share"), rows=[(folder.name, cells)]
    )
    return StageFindings(sentences=(f"{share} of the demonstrations thank.",), tables=(table,))


THANKS = PageSection(title="Thanks", note="A word is no gratitude.", file="thanks.json", read=read)
