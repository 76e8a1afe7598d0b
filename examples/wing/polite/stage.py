"""A stage that keeps the demonstrations whose answer thanks: ``do: thanks``."""

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


def keep_thanks(settings: ThanksSettings, file: Path) -> str:
    """Write the rows that thank; returns what was found, in a sentence."""
    rows = [row for row in read_records(settings.data).records if isinstance(row, Demonstration)]
    thankful = [row for row in rows if settings.word in str(row.completion).lower()]
    write_records(thankful, file)
    return f"{len(thankful)} of {len(rows)} demonstrations thank"


def run(settings: ThanksSettings, out: Path, *_: object) -> StageResult:
    """What a pipeline calls: of checked settings, into the stage's own folder."""
    file = out / "rows.jsonl"
    command = command_line("plaudit thanks", settings.data, file, word=settings.word)
    return StageResult(sentences=(keep_thanks(settings, file),), command=command)


THANKS = StageKind(
    name="thanks", produces="rows", settings=ThanksSettings, accepts={"data": ("rows",)}, run=run
)
