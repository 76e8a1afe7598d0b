"""Revisions by a model: an answer, what is wrong with it, the answer anew, in up to four rounds.

The supervised stage of Constitutional AI (Bai et al. 2022, arXiv:2212.08073) trains on the last revisions.
CLAIR (D'Oosterlinck et al. 2024, arXiv:2408.06266) pairs an answer with a revision that changes little: they
differ in what matters and in little else. Every step is kept; what teaches nothing is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from plaudit.data.edits import edit_distance, edit_share, token_jaccard
from plaudit.data.judging import NoVerdict
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Record,
    Text,
    answers_of,
    assistant_turn,
    plain_text,
    text_to_json,
)
from plaudit.data.transforms import some_of
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import evaluation_prompts
from plaudit.feedback.asking import check_rounds
from plaudit.feedback.judged_rows import GROUP
from plaudit.feedback.judges.constitution import Constitution, Principle
from plaudit.feedback.judges.money import BYTES_A_TOKEN, Estimate, total_estimate
from plaudit.feedback.judges.wording import Question, Wording, with_numbers, wording_named
from plaudit.feedback.judges.writing import Writer, Written
from plaudit.rollouts.sampler import SamplingSettings, TextSampler

CUT_ANSWER = "cut off"
"""The reason where an answer did not come to an end: half a sentence is no answer to revise."""
EMPTY_ANSWER = "empty"
"""The reason where an answer says nothing."""
OTHER_ANSWER = "of several turns, or with calls"
"""The reason where an answer is more than one turn of words."""
UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    prompt: Text
    answer: str
    category: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionPlan:
    rounds: int = 1
    """How often an answer is criticised and written anew."""
    minimal: bool = False
    """Whether as little as can be is to change: one round, in words of its own."""
    critiques: bool = True
    """Whether a revision mends what a critique names, or sees the answer alone (Bai et al., figure 7)."""
    constitution: Constitution | None = None
    """Whose principles are drawn, one for each round; None: the wordings' own."""
    seed: int = 0
    """What tells one draw of the texts from another."""

    def __post_init__(self) -> None:
        check_rounds(self.rounds, minimal=self.minimal)

    @property
    def critique(self) -> Wording:
        return wording_named("critique")

    @property
    def revise(self) -> Wording:
        with_critique = "revise-little" if self.minimal else "revise"
        return wording_named(with_critique if self.critiques else "revise-alone")

    def principles(self, draft: Draft) -> Sequence[Principle | None]:
        """A principle for each round, by a hash of the prompt; fewer rounds where fewer fit its category."""
        if self.constitution is None:
            return [None] * self.rounds
        return self.constitution.drawn(plain_text(draft.prompt), category=draft.category, count=self.rounds)

    def version(self, writer: Writer) -> str:
        """What revisions hang on besides the model, as it stands in rows behind the model's name."""
        own = "" if self.constitution is None else f"-{self.constitution.version}"
        rounds = "" if self.rounds == 1 else f"-{self.rounds}x"
        return f"{writer.version(self.revise)}{rounds}{own}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    principle: str | None
    """The id of its principle; None without a constitution."""
    critique: str | None
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    round: int
    step: str
    reason: str
    """Refused, cut off, not to be read, not to be reached …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """An answer on its way through the rounds, and what became of it."""

    draft: Draft
    principles: Sequence[Principle | None]
    """That of each round; None without a constitution."""
    steps: tuple[Step, ...] = ()
    failure: Failure | None = None
    """What ended them early, where anything did."""
    tokens: int = 0
    price: float = 0.0
    """What they cost; 0 without prices."""

    @property
    def texts(self) -> list[str]:
        """The answer as it was, and that of every round."""
        return [self.draft.answer.strip(), *(step.revision for step in self.steps)]

    def completion(self, words: str) -> Text:
        """Words as an answer of the prompt's kind: a turn after turns, a text after a text."""
        if not isinstance(self.draft.prompt, str):
            return assistant_turn(words)
        # The blank between a text and what goes on after it belongs to the answer.
        answer = self.draft.answer
        return words if words == answer else f"{answer[: len(answer) - len(answer.lstrip())]}{words}"

    @property
    def revision(self) -> str | None:
        """The last revision; None where there is none, or it is the answer as it was."""
        last = self.steps[-1].revision if self.steps else self.draft.answer
        return None if last == self.draft.answer.strip() else last

    @property
    def outcome(self) -> str:
        """Revised, unchanged, or what failed in the first round."""
        if self.revision is not None:
            return "revised"
        failure = self.failure
        return UNCHANGED if self.steps or failure is None else f"{failure.step} {failure.reason}"

    def question(self, plan: RevisionPlan, critique: str | None) -> Question:
        """What is asked next: a critique of the answer as it is now, or with that the answer anew."""
        principle, prompt = self.principles[len(self.steps)], self.draft.prompt
        blocks = (("Answer", self.steps[-1].revision if self.steps else self.draft.answer),)
        if critique is None and plan.critiques:
            fill = {} if principle is None else {"principle": principle.critique}
            return Question(wording=plan.critique, prompt=prompt, blocks=blocks, fill=fill)
        fill = {} if principle is None else {"principle": principle.revise}
        blocks = blocks if critique is None else (*blocks, ("Critique", critique))
        return Question(wording=plan.revise, prompt=prompt, blocks=blocks, fill=fill)

    def with_step(self, critique: str | None, revision: str) -> Revised:
        principle = self.principles[len(self.steps)]
        name = None if principle is None else principle.id
        return replace(self, steps=(*self.steps, Step(principle=name, critique=critique, revision=revision)))


Write = Callable[[Sequence[Question]], Sequence[Written | NoVerdict]]
"""From questions to the texts that answer them."""


def revise_drafts(drafts: Sequence[Draft], plan: RevisionPlan, writer: Writer) -> list[Revised]:
    """Every answer through all rounds; a round that fails ends its chain, and what came before it counts."""
    return _through_rounds(drafts, plan, writer, lambda questions: writer.texts(questions, plan.seed))


def estimated_revisions(drafts: Sequence[Draft], plan: RevisionPlan, writer: Writer) -> Estimate:
    """What all rounds will ask, and cost at most; nothing is asked."""
    parts = list[Estimate]()

    def forecast(question: Question) -> Written | NoVerdict:
        parts.append(writer.estimate([question], plan.seed))
        # Replies that are there are read, for others a text as long as can be.
        if parts[-1].cached:
            return writer.texts([question], plan.seed)[0]
        return Written(text="x" * writer.max_tokens * BYTES_A_TOKEN, tokens=0, price=0.0)

    _through_rounds(drafts, plan, writer, lambda questions: [*map(forecast, questions)])
    return total_estimate(parts)


def _through_rounds(
    drafts: Sequence[Draft], plan: RevisionPlan, writer: Writer, write: Write
) -> list[Revised]:
    items = [Revised(draft=draft, principles=plan.principles(draft)) for draft in drafts]
    for number in range(plan.rounds):
        critiques = dict[int, str]()
        # All critiques of a round at once, then all revisions: a server is asked many things side by side.
        for step in ("critique", "revision") if plan.critiques else ("revision",):
            live = [
                n for n, item in enumerate(items) if item.failure is None and number < len(item.principles)
            ]
            questions = [items[n].question(plan, critiques.get(n)) for n in live]
            for n, question, found in zip(live, questions, write(questions), strict=True):
                item = items[n]
                if isinstance(found, NoVerdict):
                    tokens, price = writer.spent(question, plan.seed)
                    item = replace(item, failure=Failure(round=number + 1, step=step, reason=found.reason))
                else:
                    tokens, price = found.tokens, found.price
                    if step == "critique":
                        critiques[n] = found.text
                    else:
                        item = item.with_step(critiques.get(n), found.text)
                items[n] = replace(item, tokens=item.tokens + tokens, price=item.price + price)
    return items


def drafts_of(
    records: Iterable[Record], *, n: int | None = None, seed: int = 0
) -> tuple[list[Draft], Counter[str]]:
    """The answers that rows hold, each once, or ``n`` of them, and how many are left out, by reason.
    Of comparisons and rankings all answers are taken."""
    found, left_out = dict[tuple[Text, str], Draft](), Counter[str]()
    for record in records:
        for completion in answers_of(record):
            words = _one_turn(completion)
            if words is None or not words.strip():
                left_out[OTHER_ANSWER if words is None else EMPTY_ANSWER] += 1
                continue
            category = None if isinstance(record, Prompt) else record.category
            draft = Draft(prompt=record.prompt, answer=words, category=category)
            found.setdefault((record.prompt, words), draft)
    return some_of([*found.values()], n, f"drafts {seed}"), left_out


def drawn_drafts(
    sampler: TextSampler, records: Iterable[Record], settings: SamplingSettings, *, n: int | None = None
) -> tuple[list[Draft], Counter[str]]:
    """A model's answer to each prompt, or to ``n`` of them; those that are cut or empty are left out."""
    prompts = [each for each in evaluation_prompts(records) if plain_text(with_numbers(each.prompt)).strip()]
    prompts = some_of(prompts, n, f"drafts {settings.seed}")
    if not prompts:
        raise UserError("there is no prompt among these rows that anybody could answer")
    drafts, left_out = list[Draft](), Counter[str]()
    answers = sampler.generate_answers([prompt.prompt for prompt in prompts], settings)
    for prompt, [answer] in zip(prompts, answers, strict=True):
        if not answer.ended or not answer.text.strip():
            left_out[EMPTY_ANSWER if answer.ended else CUT_ANSWER] += 1
            continue
        drafts.append(Draft(prompt=prompt.prompt, answer=answer.text, category=prompt.category))
    return drafts, left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """What came of all answers, as rows and as figures."""

    items: tuple[Revised, ...]
    annotator: str
    """Who revised, with the version, as it stands in rows."""

    @property
    def outcomes(self) -> Counter[str]:
        """How many were revised, unchanged, or failed, by reason."""
        return Counter(item.outcome for item in self.items)

    @property
    def texts(self) -> tuple[list[str], list[str]]:
        both = [(item.draft.answer.strip(), item.revision) for item in self.items]
        return [old for old, new in both if new is not None], [new for _, new in both if new is not None]

    @property
    def demonstrations(self) -> tuple[Demonstration, ...]:
        return tuple(
            Demonstration(completion=item.completion(revision), **self._shared(item.draft))
            for item, revision in self._changed()
        )

    @property
    def pairs(self) -> tuple[Comparison, ...]:
        """The last revisions, each preferred to its original."""
        return tuple(
            Comparison(
                chosen=item.completion(revision),
                rejected=item.completion(item.draft.answer),
                **self._shared(item.draft),
            )
            for item, revision in self._changed()
        )

    def rows(self, give: Literal["demonstrations", "pairs"]) -> Sequence[Record]:
        """The rows of either kind; refuses where there are none."""
        rows = self.demonstrations if give == "demonstrations" else self.pairs
        if not rows:
            counted = ", ".join(f"{count} {why}" for why, count in self.outcomes.items())
            raise UserError(f"no answer was revised, so there are no rows ({counted or 'no answers'})")
        return rows

    def step_rows(self, plan: RevisionPlan, writer: Writer) -> Iterator[dict[str, Any]]:
        """Everything about each answer, as an object of a line of JSON."""
        wordings = {"critique": writer.version(plan.critique), "revise": writer.version(plan.revise)}
        for item in self.items:
            row: dict[str, Any] = {"prompt": text_to_json(item.draft.prompt), "answer": item.draft.answer}
            row |= {} if item.draft.category is None else {"category": item.draft.category}
            row["rounds"] = [asdict(step) for step in item.steps]
            failure = None if item.failure is None else asdict(item.failure)
            row |= {"outcome": item.outcome, "failure": failure, **_edit_row(item)}
            yield row | {
                "by": writer.name,
                "wordings": wordings,
                "tokens": item.tokens,
                "price": round(item.price, 9),
            }

    def _changed(self) -> Iterator[tuple[Revised, str]]:
        return ((item, item.revision) for item in self.items if item.revision is not None)

    def _shared(self, draft: Draft) -> dict[str, Any]:
        who = {"annotator": self.annotator, "group": GROUP}
        return {"prompt": draft.prompt, "category": draft.category, **who}


def _edit_row(item: Revised) -> dict[str, Any]:
    if item.revision is None:
        return {}
    before = item.draft.answer.strip()
    return {
        "shared_words": round(token_jaccard(before, item.revision), 4),
        "characters_changed": edit_distance(before, item.revision),
        "share_changed": round(edit_share(before, item.revision), 4),
    }


def _one_turn(completion: Text) -> str | None:
    if isinstance(completion, str):
        return completion
    return None if len(completion) != 1 or completion[0].tool_calls else plain_text(completion)
