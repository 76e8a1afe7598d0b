"""Rows that teach a judge by points: word for word what such a judge is asked, and the truth."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, plain_text
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.chat import ChatRequest
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import Estimate
from plaudit.lab.world.annotators import TRUE_ANNOTATOR
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.teaching import points


@dataclass
class Listener:
    model: str = "listener"
    questions: list[str] = field(default_factory=list[str])

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        self.questions += [request.question.text() for request in requests]
        odds = {word: 1 / 5 for word in "12345"}
        return [Reply(text="3", number="", refused=False, cut=False, odds=odds) for _ in requests]

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        return Estimate(questions=len(requests), cached=0, prompt_tokens=0, reply_tokens=0, cost=0.0)

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        return len(requests), 0.0


def test_a_row_asks_what_a_judge_by_points_is_asked_and_says_the_true_points() -> None:
    tasks = answer_tasks(40, answers=1, seed=3)
    asked = Listener()
    ModelJudge(asker=asked, ask=HowToAsk(how="points")).scores(tasks)
    rows = points(40, seed=3)
    # The first question is asked twice: it shows whether there are log-probs.
    assert [plain_text(row.prompt) for row in rows] == asked.questions[-40:]
    for task, row in zip(tasks, rows, strict=True):
        [mark] = TRUE_ANNOTATOR.verdict(task, 0).marks
        assert plain_text(row.completion) == f"{mark.rating:g}"
    assert len(Counter(plain_text(row.completion) for row in rows)) >= 4


def test_the_command_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    assert main(["world", "make", "points", "--n", "6", "--seed", "3", "--out", str(path)]) == 0
    rows = [row for row in read_records(path).records if isinstance(row, Demonstration)]
    made = points(6, seed=3)
    assert [(row.prompt, row.completion) for row in rows] == [(row.prompt, row.completion) for row in made]
    assert main(["world", "make", "points", "--annotators", "crowd", "--out", str(path)]) == 2
