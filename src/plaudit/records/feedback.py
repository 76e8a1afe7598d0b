"""What people gave: demonstrations, comparisons, rankings, ratings, labelled steps, bare prompts.

Every record is one prompt and its completions. ``origin`` says where the row came from
(``pairs.jsonl:12``), so that any later complaint can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plaudit.records.messages import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An answer to learn from.

    Example: ``Demonstration(prompt="2 + 2 =", completion=" 4")``
    """

    prompt: Text
    """What was asked; an empty string for plain text without a question."""
    completion: Text
    """What was answered: a string, or turns that begin with the assistant's."""
    annotator: str | None = None
    """Who wrote it, as a pseudonym."""
    group: str | None = None
    """The group that the annotator belongs to."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of two answers, the one that was preferred.

    Example: ``Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.", strength=3)``
    """

    prompt: Text
    """What both answers reply to."""
    chosen: Text
    """The preferred answer."""
    rejected: Text
    """The other one."""
    strength: float | None = None
    """How clear the preference was, on the annotator's own scale; 0 is a tie."""
    margin: float | None = None
    """The reward gap that the loss should ask for (Llama 2)."""
    probability: float | None = None
    """The chance that ``chosen`` is the better one; 0.5 is a tie, None means it was simply chosen."""
    annotator: str | None = None
    """Who judged, as a pseudonym."""
    group: str | None = None
    """The group that the annotator belongs to."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """K answers in order.

    Example: ``Ranking(prompt="Name a fruit.", completions=("Pear.", "Fig!", "No."), ranks=(1, 1, 3))``
    """

    prompt: Text
    """What all the answers reply to."""
    completions: tuple[Text, ...]
    """The K answers, K ≥ 2."""
    ranks: tuple[float, ...]
    """The rank of each, 1 is best; equal ranks are ties."""
    annotator: str | None = None
    """Who ranked, as a pseudonym."""
    group: str | None = None
    """The group that the annotator belongs to."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One answer with a score or a thumb.

    Example: ``Rating(prompt="Tell a joke.", completion="No.", score=0.0)``
    """

    prompt: Text
    """What was asked."""
    completion: Text
    """What was answered."""
    score: float
    """The score, higher is better; a thumb is 1.0 up, 0.0 down."""
    aspect: str | None = None
    """What was rated (helpfulness, correctness …); None is the answer as a whole."""
    thumb: bool = False
    """True when the score is a thumb (only 0 and 1 occur), not a point on a scale."""
    annotator: str | None = None
    """Who rated, as a pseudonym."""
    group: str | None = None
    """The group that the annotator belongs to."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A solution in steps, each with its label.

    Example: ``Steps(prompt="Solve 2x = 6.", steps=("Divide by 2.", "x = 4."), labels=(1.0, 0.0))``
    """

    prompt: Text
    """The problem."""
    steps: tuple[str, ...]
    """The steps, in order."""
    labels: tuple[float, ...]
    """One label a step: 1 right, 0 wrong; a neutral step is 0.5 or what the reader was told."""
    annotator: str | None = None
    """Who labelled, as a pseudonym."""
    group: str | None = None
    """The group that the annotator belongs to."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question without an answer: what a policy is sampled on.

    Example: ``Prompt(prompt="What is 3 + 4?", answer="7", metadata={"category": "arithmetic"})``
    """

    prompt: Text
    """The question."""
    answer: str | None = None
    """The reference answer, when there is one."""
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    """Whatever else the row carried."""
    origin: str = ""
    """File and row."""


Record = Demonstration | Comparison | Ranking | Rating | Steps | Prompt
"""Any fact that a row can hold."""
