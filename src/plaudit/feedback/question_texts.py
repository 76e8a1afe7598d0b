"""What models are asked, word for word, for whoever writes rows that teach a model to reply to it."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.data.records import Text
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.rubric import OVERALL
from plaudit.feedback.judges.wording import Question, wording_named


def question_text(
    way: str, prompt: Text, blocks: tuple[tuple[str, str], ...], fill: Mapping[str, str] | None = None
) -> str:
    """A question in the wording of a name, without the number that is drawn for each call."""
    return Question(wording=wording_named(way), prompt=prompt, blocks=blocks, fill=fill or {}).text()


def points_question(prompt: Text, answer: str) -> str:
    """What ``how=points`` asks about an answer as a whole."""
    [aspect] = OVERALL
    fill = {"aspect": aspect.name, "description": aspect.description, "points": str(HowToAsk().points)}
    return question_text("points", prompt, (("Answer", answer),), fill)
