"""A stage that keeps the demonstrations whose answer thanks: ``do: thanks``."""

import json
from dataclasses import dataclass
from pathlib import Path

from plaudit import Demonstration, read_records, write_records
from plaudit.runs import StageKind, StageResult, command_line


@dataclass(frozen=True, slots=True, kw_only=True)
class ThanksSettings:
    """The settings of the stage, as they stand in a pipeline."""

    data: Path
    """Demonstrations."""
    word: str = "thank"
    """What an answer must hold."""


def keep_thanks(settings: ThanksSettings, file: Path) -> tuple[int, int]:
    """Write the rows that thank; returns how many do, and how many there were."""
    rows = [row for row in read_records(settings.data).records if isinstance(row, Demonstration)]
    thankful = [row for row in rows if settings.word in str(row.completion).lower()]
    write_records(thankful, file)
    return len(thankful), len(rows)


def sentence(thankful: int, rows: int) -> str:
    """What the verb prints, and what log and page say."""
    return f"{thankful} of {rows} demonstrations thank"


def run(settings: ThanksSettings, out: Path, *_: object) -> StageResult:
    """What a pipeline calls: of checked settings, into the stage's own folder."""
    thankful, rows = keep_thanks(settings, out / "rows.jsonl")
    (out / "thanks.json").write_text(json.dumps({"thankful": thankful, "rows": rows}), "utf-8")
    command = command_line("plaudit thanks", settings.data, out / "rows.jsonl", word=settings.word)
    return StageResult(sentences=(sentence(thankful, rows),), command=command)


THANKS = StageKind(
    name="thanks", produces="rows", settings=ThanksSettings, accepts={"data": ("rows",)}, run=run
)
