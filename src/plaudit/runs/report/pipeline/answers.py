"""Answers side by side on the page: four questions at its beginning, and those on which policies differ most.

The four are drawn by a hash of their words, so that nobody chose them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from plaudit.evaluation.policies.result import PolicyAnswer, PolicyEvaluation, PromptAnswers
from plaudit.runs.report.parts import Answer, Exchange, Samples, Section, Text, say
from plaudit.runs.report.words import counted, number_text, percent, short_name, shortened

MAX_PROMPTS = 20
MAX_TEXT_LENGTH = 1000


def samples_section(evaluation: PolicyEvaluation) -> Iterator[Section]:
    """The prompts on which policies differ most from the reference, with everybody's answers."""
    rows = evaluation.all_answers or evaluation.shown
    if not rows:
        return
    reference = evaluation.reference or evaluation.policies[0].name
    changes = {place: change for place, row in enumerate(rows) if (change := _change(row, reference)) > 0}
    # Alike in size, they stay in the order of the prompts: sorted is stable.
    chosen = [rows[at] for at in sorted(changes, key=lambda place: -changes[place])[:MAX_PROMPTS]]
    has_worth = any(answer.gold is not None for row in rows for answer in row.answers)
    scale = "worth" if has_worth else "score or words"
    sentence = say(
        "answers.samples", differing=len(changes), rows=len(rows), reference=reference, scale=scale
    )
    exchanges = [
        _exchange(row, reference, title=f"Prompt {number}") for number, row in enumerate(chosen, start=1)
    ]
    brief = say("answers.brief", count=len(chosen))
    yield Section("Samples", "samples", [Text(sentence), Samples(exchanges, "answers")], brief)


def _exchange(row: PromptAnswers, reference: str, *, title: str = "") -> Exchange:
    detail = short_name(row.category) if row.category else ""
    answers = [*_compared_answers(row, reference)]
    return Exchange(prompt=row.prompt, answers=answers, title=title, detail=detail)


def _change(row: PromptAnswers, reference: str) -> float:
    """How far the answers to a prompt are from the reference's: in worth, or in reward, or at all."""
    base = next((answer for answer in row.answers if answer.policy == reference), row.answers[0])
    others = [answer for answer in row.answers if answer is not base]
    for name in ("gold", "reward"):
        before = getattr(base, name)
        values = [value for answer in others if (value := getattr(answer, name)) is not None]
        if before is not None and values:
            return max(abs(value - before) for value in values)
    return float(any(answer.text != base.text for answer in others))


def _compared_answers(row: PromptAnswers, reference: str) -> Iterator[Answer]:
    """What each policy said, beside what the reference said: ``before``; the others are ``now``."""
    base = next((answer for answer in row.answers if answer.policy == reference), None)
    for answer in row.answers:
        compared = base is not None and answer.policy != reference and bool(answer.text.strip())
        is_same = compared and base is not None and answer.text == base.text
        yield Answer(
            label=short_name(answer.policy),
            kind="before" if answer.policy == reference else "now",
            change=_change_name(answer, base),
            text=answer.text,
            is_same=is_same,
            pieces=tuple(_marked_pieces(answer.text, base.text)) if compared and base and not is_same else (),
            scores=_scores_text(answer),
        )


def _change_name(answer: PolicyAnswer, base: PolicyAnswer | None) -> str:
    better = 0.5 if base is None else _preference(answer, base)
    return "" if better is None or better == 0.5 else "better" if better > 0.5 else "worse"


def _preference(answer: PolicyAnswer, base: PolicyAnswer) -> float | None:
    """By true worth 1, ½ or 0; else the judge's chance that the answer is better; None where nobody knows."""
    if answer.gold is not None and base.gold is not None:
        return 0.5 + 0.5 * ((answer.gold > base.gold) - (answer.gold < base.gold))
    if answer.verdict is not None:
        return answer.verdict
    # Verdicts stand beside the policies that were compared with the reference: of it they are the rest.
    return None if base.verdict is None else 1 - base.verdict


def _scores_text(answer: PolicyAnswer) -> str:
    # Where the true worth is known, a judge's opinion beside it would only take room.
    known_by_judge = answer.verdict if answer.gold is None else None
    parts = (
        "" if answer.gold is None else f"worth {number_text(answer.gold)}",
        "" if known_by_judge is None else f"{percent(known_by_judge)} preferred",
        "" if answer.reward is None else f"reward {number_text(answer.reward)}",
        counted(answer.tokens, "token"),
        "" if answer.ended else "cut",
    )
    return " · ".join(part for part in parts if part)


def _marked_pieces(text: str, base: str) -> Iterator[tuple[str, bool]]:
    for piece, differs in diff_pieces(text[:MAX_TEXT_LENGTH], base[:MAX_TEXT_LENGTH]):
        yield piece, differs and bool(piece.strip())
    yield shortened(text, MAX_TEXT_LENGTH)[len(text[:MAX_TEXT_LENGTH]) :], False


_WORDS = re.compile(r"\s+|[^\s\w]|\w+")


def diff_pieces(text: str, base: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it differs from the base; joined, they are the text.

    >>> diff_pieces("The owl eats mice.", "The owl eats hay.")
    [('The owl eats ', False), ('mice', True), ('.', False)]

    What stands between two words that differ differs with them, where it is only white space.
    """
    old, new = _WORDS.findall(base), _WORDS.findall(text)
    diff: list[tuple[str, bool]] = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start < end:
            diff.append(("".join(new[start:end]), kind != "equal"))
    joined: list[tuple[str, bool]] = []
    for index, (piece, differs) in enumerate(diff):
        neighbours = diff[max(index - 1, 0) : index + 2]
        is_gap = len(neighbours) == 3 and neighbours[0][1] and neighbours[2][1] and not piece.strip()
        if (differs or is_gap) and joined and joined[-1][1]:
            joined[-1] = (joined[-1][0] + piece, True)
        else:
            joined.append((piece, differs))
    return joined


MAX_QUESTIONS = 4
"""Prompts that stand at the beginning of the page."""


def questions_section(evaluation: PolicyEvaluation, *, before: str, after: str) -> Iterator[Section]:
    sentence, rows = drawn_questions(evaluation, before=before, after=after)
    if rows:
        title = "Four questions" if len(rows) == 4 else "Questions"
        exchanges = [_exchange(row, before) for row in rows]
        yield Section(title, "questions", [Text(sentence, "quiet"), Samples(exchanges, "questions")])


def drawn_questions(
    evaluation: PolicyEvaluation, *, before: str, after: str
) -> tuple[str, list[PromptAnswers]]:
    """A sentence on how they were drawn, and four of the prompts on which the two say different things.
    They stand in the order of the sha256 of their words, the first of each category, and then the next of
    all. Where none of the four is a loss and there are losses, the first of those takes the last place."""
    pairs = [*_first_pairs(evaluation.all_answers or evaluation.shown, before, after)]
    differing = [row for row in pairs if row.answers[0].text != row.answers[1].text]
    if not differing:
        return "", []
    ordered = sorted(differing, key=lambda row: hashlib.sha256(row.prompt.encode(errors="replace")).digest())
    changes = {row.prompt: _change_name(row.answers[1], row.answers[0]) for row in ordered}
    drawn = _one_of_each_category(ordered)
    losses = [row for row in ordered if changes[row.prompt] == "worse"]
    if losses and not any(changes[row.prompt] == "worse" for row in drawn):
        others = {row.category for row in drawn[:-1]}
        drawn = [*drawn[:-1], next((row for row in losses if row.category not in others), losses[0])]
    compared = any(_preference(row.answers[1], row.answers[0]) is not None for row in ordered)
    counts = Counter(changes.values())
    outcomes = say(
        "answers.outcomes", name=after, better=counts["better"], worse=counts["worse"], equal=counts[""]
    )
    sentence = say(
        "answers.questions",
        differing=len(differing),
        pairs=len(pairs),
        after=after,
        before=before,
        outcomes=outcomes if compared else "",
        drawn=len(drawn),
        loss=say("answers.loss") if losses else "",
    )
    return sentence, drawn


def _first_pairs(rows: Sequence[PromptAnswers], before: str, after: str) -> Iterator[PromptAnswers]:
    prompts = set[str]()
    for row in rows:
        by_policy = {answer.policy: answer for answer in row.answers}
        if row.prompt not in prompts and {before, after} <= set(by_policy):
            prompts.add(row.prompt)
            yield PromptAnswers(
                prompt=row.prompt, category=row.category, answers=(by_policy[before], by_policy[after])
            )


def _one_of_each_category(ordered: Sequence[PromptAnswers]) -> list[PromptAnswers]:
    """The first of each category, as many as there is room for; then those that come next."""
    firsts = {row.category: row for row in reversed(ordered)}
    spread = [row for row in ordered if firsts[row.category] is row]
    return [*spread, *[row for row in ordered if firsts[row.category] is not row]][:MAX_QUESTIONS]
