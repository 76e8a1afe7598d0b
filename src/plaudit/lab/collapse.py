"""What becomes of the variety of answers when a policy is optimised."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import (
    alike,
    by_prompt,
    course,
    leashes,
    mean_of,
    more,
    plain,
    spread,
    with_ends,
    worth,
)
from plaudit.lab.pictures import over_steps, several
from plaudit.page.html import Html
from plaudit.page.intervals import Row, Rows, shares
from plaudit.page.words import Number, figure, percent
from plaudit.pipeline.folder import Folder
from plaudit.reports.page_wins import span

BASE, START, LEASHED, FREE = "base", "sft", "leashed", "free"
"""The policies of the config: before all, fine-tuned, optimised on a leash, and without one."""
_PROMPTS = 3


def look(folder: Folder) -> Seen:
    """Worth, likeness and entropy of every policy's answers."""
    found = evaluated(folder, "evaluation")
    names = {BASE: "the base model", START: "fine-tuned"} | leashes(folder, LEASHED, FREE)
    entropy = {names[name]: course(folder, name, "entropy") for name in (FREE, LEASHED)}
    return Seen(
        claims=_claims(found, names[LEASHED]),
        table=_table(found, names),
        pictures=(
            Picture(
                title="How often two answers to a prompt are the same",
                says="Before and after, with a leash and without.",
                drawn=_alike(found, names),
            ),
            Picture(
                title="Entropy on the way",
                says="Does it fall while the policy learns, and does the leash hold it?",
                drawn=over_steps("Entropy", "nats a token", entropy),
            ),
            Picture(
                title="All that it says",
                says="The prompts on which most variety was lost: every answer once, with how often it came.",
                drawn=several(found, {START: names[START], FREE: names[FREE]}, _narrowed(found)),
            ),
        ),
    )


def _claims(found: PolicyEvaluation, leash: str) -> tuple[Claim, ...]:
    same = "of pairs of answers are the same"
    return (
        more("What is optimised is worth more.", found, (FREE, START), worth, "of true worth"),
        more("Its answers to one prompt become alike.", found, (FREE, START), alike, same),
        more(f"With {leash} less of the variety is lost.", found, (FREE, LEASHED), alike, same),
        more(
            "Asking several times gains less: the best answer is nearer to the mean one.",
            found,
            (START, FREE),
            spread,
            "of true worth from the mean answer to the best",
        ),
        more("Fine-tuning had begun it.", found, (START, BASE), alike, same),
    )


def _table(found: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            label,
            with_ends(one.gold),
            with_ends(mean_of(found, name, alike)),
            plain(one.entropy),
            *_variety(one),
            plain(one.kl),
        )
        for name, label, one in ((name, label, policy(found, name)) for name, label in names.items())
    )
    words = policy(found, START).diversity.words
    head = (
        "policy",
        "true worth",
        "the same",
        "entropy",
        "unlike",
        "pairs",
        "BLEU",
        "KL",
    )
    note = (
        f"{found.prompts} prompts, {found.answers} answers to each. The same: the chance that two answers to "
        "a prompt are. Unlike: of the answers to a prompt. Pairs: unlike pairs of neighbouring words; these "
        f"and self-BLEU, among the answers to a prompt, are of their first {words} words. KL: nats. "
        "In brackets: 95 % intervals over prompts."
    )
    return Table(head=head, rows=rows, note=note)


def _variety(one: PolicyFigures) -> tuple[str, str, str]:
    held = one.diversity
    return (
        _or(held.unique_within, percent),
        _or(held.distinct_2, percent),
        _or(held.self_bleu_within, figure),
    )


def _or(value: Number | None, write: Callable[[Number], str]) -> str:
    return "not known" if value is None else write(value)


def _alike(found: PolicyEvaluation, names: Mapping[str, str]) -> Html:
    rows = [Row(label=label, spans=(span(mean_of(found, name, alike)),)) for name, label in names.items()]
    return shares("The same answer twice", "of pairs of answers", Rows(rows=rows, series=("the same",)))


def _narrowed(found: PolicyEvaluation) -> list[str]:
    """The prompts on which most variety was lost."""
    before, after = (by_prompt(found, name, alike) for name in (START, FREE))
    return sorted(before, key=lambda prompt: before[prompt] - after.get(prompt, 0.0))[:_PROMPTS]


EXERCISE = Exercise(
    name="collapse",
    title="Does a policy that is optimised still have more than one thing to say?",
    why=(
        "A fine-tuned model imitates all that people said; a policy that is optimised looks for the answer "
        "that pays most, and its variety goes. It is called mode collapse. RLHF was found to cost more "
        "variety than fine-tuning does (Kirk et al. 2024, arXiv:2310.06452), and to ask such a policy many "
        "times gains less (Yue et al. 2025, arXiv:2504.13837). Here the truth itself pays, so it is no fault "
        "of a reward."
    ),
    minutes=1,
    look=look,
    further=(
        "plaudit lab collapse --set leashed.policy.beta=5: a shorter leash keeps more, and gains less",
        "plaudit lab collapse --set evaluation.temperature=1.5: does heat bring the variety back",
    ),
)
"""Mode collapse."""
