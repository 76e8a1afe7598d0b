"""The reward: it says something of every answer, the same thing each time, and of that answer alone.

A run that begins asks no reward: one of the user's own may keep count of its calls, and one behind an address
may cost money. ``plaudit check`` asks the latter about two answers to each of two prompts, a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.placed import place
from plaudit.checks.read_alike import template
from plaudit.checks.subject import Subject
from plaudit.checks.tasks import (
    Questions,
    differing,
    ill_formed,
    leaves,
    questions,
    reward_of,
    tasks,
    why_none,
)
from plaudit.records.judging import Task
from plaudit.records.messages import Text, assistant_says, words
from plaudit.rewards.asking import reasons_of
from plaudit.rewards.reward import Row
from plaudit.rewards.worded_ranker import Ranker


def finite(subject: Subject) -> Result:
    """The reward is asked once about a few of the user's prompts, one of them with an empty answer too.

    An empty answer is something that every model says sooner or later. Each score must be a finite number, or
    None where there is no verdict, and there must be a verdict on something.
    """
    reward = reward_of(subject)
    found = [] if reward is None else tasks(subject, reward)
    if reward is None or not found:
        return not_applicable(
            why_none(subject) if reward is None else "no prompt of the first rows can be asked"
        )
    asked = [task for _, task in found]
    asked[0] = _with(asked[0], ("",))
    rows = reward.scores(asked)
    wrong = ill_formed(asked, rows)
    if wrong is not None:
        return failed(f"{reward.name}, {found[0][0]} and on: {wrong}")
    scores = [score for row in rows for score in row]
    known = [score for score in scores if score is not None]
    if not known:
        why = "; ".join(reasons_of(reward)) or "it does not say why"
        return failed(f"{reward.name} has no verdict on any of {len(scores)} answers ({why[:120]})")
    return passed(
        f"{len(known)} of {len(scores)} answers have a score, from {min(known):.4g} to {max(known):.4g}"
    )


def steady(subject: Subject) -> Result:
    """The reward is asked the very same thing twice."""
    return _again(subject, lambda asked: asked, "asked twice")


def order(subject: Subject) -> Result:
    """The reward is asked about the same prompts and answers from the last to the first."""

    def turned(asked: Sequence[Task]) -> list[Task]:
        return [replace(one, answers=one.answers[::-1], ended=one.ended[::-1]) for one in asked[::-1]]

    return _again(
        subject, turned, "asked in the opposite order", back=lambda rows: [r[::-1] for r in rows[::-1]]
    )


def alone(subject: Subject) -> Result:
    """The reward is asked about every answer by itself, one request after another."""
    found = questions(subject)
    if isinstance(found, str):
        return not_applicable(found)
    if any(isinstance(leaf, Ranker) for leaf in leaves(found.reward)):
        return not_applicable("the reward compares the answers to one prompt with each other")
    rows = [tuple(found.reward.scores([one])[0][0] for one in _singles(task)) for task in found.tasks]
    return _compared(found, rows, "asked about it alone")


def differs(subject: Subject) -> Result:
    """The reward is asked about answers that differ.

    Where all of them have one score it is asked about an empty answer, the prompt's own words and the row's
    reference answer too: a reward that is 0 until a model succeeds must at least tell success from nothing.
    """
    found = questions(subject)
    if isinstance(found, str):
        return not_applicable(found)
    texts = {words(answer) for task in found.tasks for answer in task.answers}
    apart = sum(len({score for score in row if score is not None}) > 1 for row in found.rows)
    spread = max(found.scores) - min(found.scores)
    said = (
        f"{len(found.scores)} scores from {min(found.scores):.4g} to {max(found.scores):.4g}; the answers to "
        f"{apart} of {len(found.tasks)} prompts differ in score"
    )
    if spread:
        return passed(said)
    task = found.tasks[0]
    truth = () if task.truth is None else (task.truth,)
    rows = found.reward.scores([_with(task, ("", words(task.prompt), *truth))])
    more = [score for row in rows for score in row if score is not None]
    if {*more} != {found.scores[0]}:
        return passed(f"{said}, so nothing is learnt from answers like these; others have {_listed(more)}")
    return failed(
        f"all {len(found.scores)} answers, {len(texts)} different ones, have the score {found.scores[0]:g}"
    )


def _again(
    subject: Subject,
    ask: Callable[[Sequence[Task]], Sequence[Task]],
    how: str,
    back: Callable[[Sequence[Row]], Sequence[Row]] = list,
) -> Result:
    """Asked once more, in another way; ``back`` puts the scores in their first order."""
    found = questions(subject)
    if isinstance(found, str):
        return not_applicable(found)
    return _compared(found, back(found.reward.scores(ask(found.tasks))), how)


def _compared(found: Questions, rows: Sequence[Row], how: str) -> Result:
    other = differing(found, rows)
    if other is None:
        allowed = f" (to {found.slack:.2g}, which is rounding)" if found.slack else ""
        return passed(f"{len(found.scores)} scores, {how}: the same{allowed}")
    origin, answer, one, two = other
    return failed(
        f"{origin}, {words(answer)[:40]!r}: the score is {_word(one)}, and {how} it is {_word(two)}"
    )


def _word(score: float | None) -> str:
    return "none" if score is None else f"{score:.6g}"


def _listed(scores: Sequence[float]) -> str:
    """Each number once.

    >>> _listed([1.0, 0.0, 1.0])
    '0, 1'
    """
    return ", ".join(f"{score:.4g}" for score in sorted(set(scores)))


def _with(task: Task, more: Sequence[str]) -> Task:
    """The same with more answers."""
    plain = isinstance(task.prompt, str)
    texts: list[Text] = [one if plain else assistant_says(one) for one in more]
    return replace(task, answers=(*task.answers, *texts), ended=(*task.ended, *(True for _ in more)))


def _singles(task: Task) -> list[Task]:
    """A task for each answer."""
    return [
        replace(task, answers=(answer,), ended=(ended,))
        for answer, ended in zip(task.answers, task.ended, strict=True)
    ]


CHECKS = (
    Check(
        name="reward-finite",
        proves="Every answer, an empty one too, gets a finite number or no verdict, and some get a number.",
        matters="A score that is not a number makes every weight one in a single step, and a reward without "
        "any verdict teaches nothing at all. A rule can also be there and never apply: in TRL#6805 a penalty "
        "looked at the wrong text, and no answer ever met it.",
        mend="Let the reward return a finite number, or None where it has no verdict. If it has none on "
        "anything, it may need a field that the rows lack: an answer, or facts beside it (docs/rewards.md).",
        look=finite,
    ),
    Check(
        name="reward-steady",
        proves="Asked twice about the same answers the reward says the same.",
        matters="A reward that is drawn anew each time teaches its own noise, and no run can be had again: "
        "verl#3126 and TRL#1014 are about runs that no seed repeats. Dropout that was left on in a reward "
        "model does this, and so does a judge at a temperature above 0.",
        mend="Give a judge temperature 0 or a seed made of the answer, and a function of your own no chance "
        "that goes on from call to call. Where the noise is wanted: --allow reward-steady.",
        look=steady,
    ),
    Check(
        name="reward-order",
        proves="In which order prompts and answers are asked changes no score.",
        matters="A score that falls to the neighbour of its answer makes bad answers likelier, and the mean "
        "reward looks normal. Scores that are sorted by length for speed and not sorted back do this, and so "
        "does a function that counts its calls.",
        mend="Return the scores in the order in which answers were given, and let none depend on earlier "
        "calls.",
        look=order,
    ),
    Check(
        name="reward-alone",
        proves="An answer asked by itself has the score that it has among others.",
        matters="Where padding, or the other texts of a batch, leak into a score, it depends on chance "
        "neighbours: TRL#2778 and transformers#35352 are scores that changed with the padding beside them.",
        mend="In a function of your own, look at one answer at a time. In a reward model, mend the attention "
        "mask or the positions; reward-place says which layout is wrong.",
        look=alone,
    ),
    Check(
        name="reward-differs",
        proves="The reward tells some answers apart.",
        matters="Policy optimisation learns from differences. Where every answer has one score, all "
        "advantages are 0: the loss is 0, the run goes on for days, and nothing is learnt. People ask why in "
        "TRL#2703, TRL#3452 and open-r1#239.",
        mend="Look at what the reward needs of an answer (docs/rewards.md), and at its settings. If a task "
        "is too hard for the model, train on answers first (plaudit train sft), or begin with easier ones.",
        look=differs,
    ),
    Check(
        name="reward-place",
        proves="A reward model is read at the answer's own last token, padded on the left, on the right or "
        "not at all.",
        matters="A reward that is read at another token is a number about something else, and it looks like "
        "any other. TRL#3750 paid at the first padding token, TRL#2778 read at another place than was "
        "trained, and a padding token that is also the end of turn makes transformers read the one before "
        "(transformers#35352).",
        mend="Give the model a padding token that ends nothing (pad_token_id in its config.json and its "
        "tokenizer), and its own tokenizer. If only one layout is wrong, use another: --memory.layout right.",
        look=place,
    ),
    Check(
        name="reward-template",
        proves="A reward model is shown every word of the conversation, in turns of its own, and no control "
        "token of the policy as letters.",
        matters="Reward models of other families write turns with other tokens, and some templates leave a "
        "system turn out. The score is then about half a conversation, or about strange signs, and nothing "
        "complains; NeMo-RL#855 asks for one place that applies templates, for this reason.",
        mend="Give prompts as messages, without control tokens in their text: each model then writes turns "
        "in its own way. Use a reward model whose template knows the roles of your rows.",
        look=template,
        at_start=True,
    ),
)
"""Checks of the reward."""
