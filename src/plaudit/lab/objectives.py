"""Two objectives: a policy that follows one reward alone pays for it with the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plaudit.evaluation.policies.result import PolicyEvaluation, Said, Shown
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import mean_of, more, tokens, with_ends, worth
from plaudit.lab.pictures import answers
from plaudit.page.html import Html, element
from plaudit.page.intervals import Row, Rows, amounts, shares
from plaudit.pipeline.folder import Folder
from plaudit.reports.page_wins import span
from plaudit.world.annotators import Part
from plaudit.world.gold import gold_of

START, HELP, BOTH = "base", "follows-help", "follows-both"
"""The policies of the config: before, by the reward for help alone, by both rewards."""
_NAMES = {START: "at the start", HELP: "help alone", BOTH: "help and brevity"}
_PARTS: tuple[Part, ...] = ("helpful", "concise")
_SHOWN = 3
_Parts = Mapping[Part, PolicyEvaluation]


def look(folder: Folder) -> Seen:
    """Help, brevity, length and worth of every policy."""
    found = evaluated(folder, "evaluation")
    parts: _Parts = {part: in_part(found, part) for part in _PARTS}
    return Seen(
        claims=_claims(found, parts),
        table=_table(found, parts),
        pictures=(
            Picture(
                title="Help and brevity",
                says="Both are parts of the true worth, which no policy has seen.",
                drawn=element("div", {"class": "curves"}, _shares(parts), _lengths(found)),
            ),
            Picture(
                title="Side by side",
                says="The prompts on which the policy that follows help alone says most beside the other.",
                drawn=answers(found, _NAMES, _wordiest(found)),
            ),
        ),
    )


def in_part(found: PolicyEvaluation, part: Part) -> PolicyEvaluation:
    """The same answers, each worth only one part of the true utility: how helpful it is, say."""
    return replace(found, every=tuple(_judged(shown, part) for shown in found.every))


def _judged(shown: Shown, part: Part) -> Shown:
    def valued(one: Said) -> Said:
        return replace(one, gold=float(getattr(gold_of(shown.prompt, one.text, ended=one.ended), part)))

    return replace(shown, said=tuple(map(valued, shown.said)))


def _claims(found: PolicyEvaluation, parts: _Parts) -> tuple[Claim, ...]:
    helpful, concise = parts["helpful"], parts["concise"]
    return (
        more("Who follows help alone grows wordy.", found, (HELP, START), tokens, "tokens"),
        more("It wastes words.", concise, (START, HELP), worth, "of being concise"),
        more("With brevity in the reward answers are shorter.", found, (HELP, BOTH), tokens, "tokens"),
        more("They waste fewer words.", concise, (BOTH, HELP), worth, "of being concise"),
        more(
            "They keep four fifths of the help.", helpful, (BOTH, HELP), worth, "of being helpful", times=1.25
        ),
        more("They are worth more.", found, (BOTH, HELP), worth, "of true worth"),
    )


def _table(found: PolicyEvaluation, parts: _Parts) -> Table:
    rows = tuple(
        (
            label,
            *(with_ends(mean_of(parts[part], name, worth)) for part in _PARTS),
            with_ends(policy(found, name).length),
            with_ends(mean_of(found, name, worth)),
            with_ends(policy(found, name).kl),
        )
        for name, label in _NAMES.items()
    )
    return Table(
        head=("policy", "helpful", "concise", "tokens", "true worth", "KL from the start"),
        rows=rows,
        note="Helpful and concise are parts of the true worth, from 0 to 1.",
    )


def _shares(parts: _Parts) -> Html:
    rows = [
        Row(label=label, spans=tuple(span(mean_of(parts[part], name, worth)) for part in _PARTS))
        for name, label in _NAMES.items()
    ]
    return shares("Helpful and concise", "parts of the true worth", Rows(rows=rows, series=_PARTS))


def _lengths(found: PolicyEvaluation) -> Html:
    rows = [Row(label=label, spans=(span(policy(found, name).length),)) for name, label in _NAMES.items()]
    return amounts("Length", "tokens of an answer", Rows(rows=rows, series=("length",)))


def _wordiest(found: PolicyEvaluation) -> Sequence[Shown]:
    def spared(shown: Shown) -> int:
        said = {one.policy: one.tokens for one in shown.said}
        return said[HELP] - said[BOTH]

    return sorted(found.every, key=spared, reverse=True)[:_SHOWN]


EXERCISE = Exercise(
    name="objectives",
    title="Why is one objective not enough?",
    why="People who are asked which answer helps more tend to point at the longer one, and a policy that "
    "follows them learns to talk (Singhal et al. 2023, arXiv:2310.03716). Two rewards, each fitted to what "
    "was said to a question of its own, can be weighed against each other, as Llama 2 does with help and "
    "safety (Touvron et al. 2023, arXiv:2307.09288). They are brought to one unit first, or weights mean "
    "little.",
    minutes=1.8,
    look=look,
    further=(
        "plaudit lab objectives --set both.weights=[0.9,0.1]: how little brevity is enough",
        "plaudit lab objectives --set asked-help.annotators=crowd: people who love length less",
        "plaudit lab objectives --set follows-help.policy.beta=0.5: whether a leash does as well",
    ),
)
"""One reward, and two."""
