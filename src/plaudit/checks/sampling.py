"""The sampler: it draws from the policy that learns, as it was told to, and what it drew is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from plaudit.checks import moved
from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.drawn import Gaps, chances_of, fit, gaps, plain_logits, rounding
from plaudit.checks.questions import Asked, asked, origins
from plaudit.checks.stopping import stops
from plaudit.checks.subject import Subject
from plaudit.records.messages import Text
from plaudit.rollouts.sampler import Sampler
from plaudit.rollouts.sampling import Rollout, SamplingSettings
from plaudit.training import judged_answers

PROMPTS = 4
"""Prompts that are answered; each twice."""
LONGEST = 12
"""Tokens of an answer at most."""
DRAWS, AGAIN = 512, 64
"""First tokens that are drawn, and how many of them again, with the same seed and with another."""
RARE = 1e-6
"""Below it a p-value speaks against the sampler: one sound run in a million is suspected."""
WILD = 100.0
"""A temperature at which every token is about as likely as any other."""
NOTHING = "nothing is learnt from sampled answers"
"""Said of runs without a sampler."""
NO_PROMPT = "no prompt of the first rows can be asked within the longest row"
"""Said where there is nobody to ask."""


def told_logps(subject: Subject) -> Result:
    """A few prompts are answered with the run's own sampling settings.

    Each answer then goes through transformers' own forward pass, alone, and its log-probs are computed again,
    among all tokens and among those that temperature, top-k, top-p and min-p leave.
    """
    rows = asked(subject, PROMPTS, LONGEST)
    if subject.sampler is None or not rows:
        return not_applicable(NOTHING if subject.sampler is None else NO_PROMPT)
    settings = _short(subject, LONGEST)
    groups = subject.sampler.rollouts([one.question.text for one in rows], settings, n=2)
    most = 4 * rounding(subject, settings)
    found: list[Gaps] = []
    for row, rollout in _flat(rows, groups):
        if not len(rollout.ids) == len(rollout.logp) == len(rollout.whole_logp):
            return failed(f"{origins([row])}: {len(rollout.ids)} tokens with {len(rollout.logp)} log-probs")
        one = gaps(plain_logits(subject, rollout.prompt, rollout.ids), rollout, settings, most / 4)
        if one.outside:
            return failed(
                f"{origins([row])}: {one.outside} tokens were drawn that {_manner(settings)} leaves out"
            )
        found.append(one)
    return _verdict(found, rows, most, "transformers' own")


def fresh(subject: Subject) -> Result:
    """Every weight that learns is moved a little, adapters included, until log-probs change clearly.

    Answers are drawn then, and what the sampler says of their tokens is compared with what the moved policy
    says of them in transformers' own forward pass. The weights are put back bit by bit.
    """
    rows = asked(subject, PROMPTS // 2, LONGEST)
    if subject.sampler is None or not rows:
        return not_applicable(NOTHING if subject.sampler is None else NO_PROMPT)
    settings = _short(subject, LONGEST)
    most = 4 * rounding(subject, settings)
    with moved.moved(subject, rows[0].question.prompt, clearly=2 * most) as shift:
        groups = subject.sampler.rollouts([one.question.text for one in rows], settings, n=2)
        new = [gaps(_again(subject, one), one, settings, most / 4) for _, one in _flat(rows, groups)]
    if shift < 2 * most:
        return failed(f"weights that learn were moved and log-probs changed by {shift:.2g} nats only")
    old = [gaps(_again(subject, one), one, settings, most / 4) for _, one in _flat(rows, groups)]
    after, before = (torch.cat([one.whole_T for one in many]) for many in (new, old))
    said = (
        f"after a move of {shift:.2g} nats a token the sampler is {float(after.mean()):.2g} from the moved "
        f"policy and {float(before.mean()):.2g} from the one before, over {len(after)} tokens"
    )
    if _close(after, most):
        return passed(said)
    stale = _close(before, most)
    return failed(f"{said}: it draws with {'weights of before' if stale else 'the weights of neither'}")


def own_tokens(subject: Subject) -> Result:
    """Answers are drawn at a temperature at which tokens are all about as likely.

    Hardly any such answer comes out the same when its text is made into tokens again. What is trained must
    be the drawn tokens themselves, every one of them, behind the prompt that the encoder makes.
    """
    rows = asked(subject, PROMPTS, LONGEST)
    if subject.sampler is None or not rows:
        return not_applicable(NOTHING if subject.sampler is None else NO_PROMPT)
    settings = SamplingSettings(temperature=WILD, max_tokens=LONGEST, seed=subject.sampling.seed)
    groups = subject.sampler.rollouts([one.question.text for one in rows], settings, n=4)
    for row, group in zip(rows, groups, strict=True):
        example = judged_answers.example_of(row.question, group)
        for rollout, trained in zip(group, example.completions, strict=True):
            if rollout.prompt != row.question.prompt or example.prompt != row.question.prompt:
                return failed(f"{origins([row])}: the sampler was shown other prompt tokens than are trained")
            if trained.ids != rollout.ids or not all(trained.mask) or len(rollout.logp) != len(rollout.ids):
                return failed(
                    f"{origins([row])}: {len(rollout.ids)} tokens were drawn, {len(rollout.logp)} have a "
                    f"log-prob, {sum(trained.mask)} are trained, and they are not the same ones"
                )
    drawn = [rollout.ids for group in groups for rollout in group]
    same, chance = _survivors(subject, drawn), _survivors(subject, _at_random(subject, drawn))
    said = (
        f"of {len(drawn)} answers {len(drawn) - same} would have other tokens if they were made of their text"
    )
    if same == len(drawn) and 2 * chance <= len(drawn):
        return failed(
            f"{said}, and of as many that are random tokens {len(drawn) - chance}: the sampler hands on "
            "tokens that were made of text, not those that were drawn"
        )
    return passed(said)


def as_told(subject: Subject) -> Result:
    """The first token of an answer is drawn a few hundred times, with a fixed seed.

    Its frequencies are held against the probabilities of transformers' own forward pass under the run's
    sampling settings (Pearson's chi-square). The same seed must give the same answers again, and
    another seed others.
    """
    rows = asked(subject, 1, LONGEST)
    if subject.sampler is None or not rows:
        return not_applicable(NOTHING if subject.sampler is None else NO_PROMPT)
    if subject.sampling.greedy:
        return not_applicable("nothing is left to chance at temperature 0")
    [row], settings = rows, _short(subject, 1)
    first, again, other = (
        _first_tokens(subject.sampler, row.question.text, replace(settings, seed=seed), draws)
        for seed, draws in ((1, DRAWS), (1, AGAIN), (2, AGAIN))
    )
    if not torch.equal(first[:AGAIN], again):
        return failed(f"{origins(rows)}: the same seed gave other answers")
    p_V = chances_of(plain_logits(subject, row.question.prompt, row.question.prompt[:1]), settings)
    found = fit(torch.bincount(first, minlength=len(p_V)), p_V)
    said = (
        f"{DRAWS} first tokens of {origins(rows)} in {found.cells} cells: chi-square {found.chi_square:.1f}, "
        f"p {found.p:.2g}"
    )
    if found.p < RARE:
        return failed(f"{said}: they are not drawn as {_manner(settings)} says")
    by_chance = AGAIN * float(p_V.square().sum().log10())
    if torch.equal(again, other) and by_chance < math.log10(RARE):
        return failed(f"{origins(rows)}: another seed gave the very same {AGAIN} answers")
    return passed(said)


def _short(subject: Subject, tokens: int) -> SamplingSettings:
    return replace(subject.sampling, max_tokens=min(tokens, subject.sampling.max_tokens))


def _flat(rows: Sequence[Asked], groups: Sequence[Sequence[Rollout]]) -> list[tuple[Asked, Rollout]]:
    return [(row, rollout) for row, group in zip(rows, groups, strict=True) for rollout in group]


def _again(subject: Subject, rollout: Rollout) -> Tensor:
    return plain_logits(subject, rollout.prompt, rollout.ids)


def _close(gap_T: Tensor, most: float) -> bool:
    """Single tokens may lie further apart than all of them on average."""
    return bool(gap_T.isfinite().all()) and float(gap_T.max()) <= most and float(gap_T.mean()) <= most / 4


def _verdict(found: Sequence[Gaps], rows: Sequence[Asked], most: float, whose: str) -> Result:
    logp_T, whole_T = (torch.cat([getattr(one, name) for one in found]) for name in ("logp_T", "whole_T"))
    among, of_all = (
        f"{float(gap_T.max()):.2g} (mean {float(gap_T.mean()):.2g})" for gap_T in (logp_T, whole_T)
    )
    said = (
        f"over {len(logp_T)} tokens of {2 * len(rows)} answers log-probs differ from {whose} by up to "
        f"{among} among what can be drawn and by up to {of_all} among all tokens; {most:.2g} is rounding"
    )
    if _close(logp_T, most) and _close(whole_T, most):
        return passed(said)
    worst = max(
        range(len(found)), key=lambda n: float(torch.maximum(found[n].logp_T, found[n].whole_T).max())
    )
    return failed(f"{said}; the furthest answer is to {origins([rows[worst // 2]])}")


def _manner(settings: SamplingSettings) -> str:
    """How tokens are drawn, in words.

    >>> _manner(SamplingSettings(top_p=0.9))
    'temperature 1, top-p 0.9'
    """
    told = [f"temperature {settings.temperature:g}"]
    told += [f"top-k {settings.top_k}"] if settings.top_k else []
    told += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    told += [f"min-p {settings.min_p:g}"] if settings.min_p else []
    return ", ".join(told)


def _survivors(subject: Subject, answers: Sequence[Sequence[int]]) -> int:
    """How many answers have the very same tokens when these are made of their text."""
    info = subject.encoder.info
    return sum(
        tuple(ids) == tuple(info.tokenizer.encode(info.decode(ids), add_special_tokens=False))
        for ids in answers
    )


def _at_random(subject: Subject, answers: Sequence[Sequence[int]]) -> list[list[int]]:
    """As many tokens for each, each as likely as any other."""
    known = len(subject.encoder.info.tokenizer)
    chance = torch.Generator().manual_seed(0)
    return [torch.randint(known, (len(ids),), generator=chance).tolist() for ids in answers]


def _first_tokens(sampler: Sampler, prompt: Text, settings: SamplingSettings, draws: int) -> Tensor:
    [group] = sampler.rollouts([prompt], settings, n=draws)
    return torch.tensor([one.ids[0] for one in group])


CHECKS = (
    Check(
        name="sampler-logps",
        proves="The log-probs that the sampler gives with its tokens are those of transformers' own forward "
        "pass, under the very temperature, top-k, top-p and min-p of the run.",
        matters="A policy learns from how likely its tokens were when they were drawn. Where that number "
        "comes from other settings or other arithmetic than the trainer's, every ratio is wrong, and the gap "
        "can grow until the run dies: TRL#6789 (truncation), TRL#4159 (temperature), open-instruct#1473 (it "
        "grew at learning rate 0), TRL#3867.",
        mend="Train and sample with the same --dtype, and let one process do both. If it still fails with "
        "--draw.top-k 0 --draw.top-p 1 --draw.min-p 0 --draw.temperature 1, the model has a head or an "
        "attention that plaudit does not know: report it with its config.json.",
        look=told_logps,
    ),
    Check(
        name="sampler-fresh",
        proves="When weights move, adapters included, the next answers are drawn with the moved weights.",
        matters="A sampler with a copy of its own can go on with old weights and nothing complains: the run "
        "looks alive and learns from somebody else's answers. A LoRA adapter that never reached the sampler "
        "cost two months in verl#7495; TRL#5312 is the same with sleeping weights.",
        mend="Let the sampler answer with the policy in memory (LocalSampler.of), or send it the weights "
        "after each update, merged with their adapters.",
        look=fresh,
    ),
    Check(
        name="sampled-is-trained",
        proves="The tokens that are trained are those that were drawn, one by one, behind the very prompt "
        "tokens that the model was shown.",
        matters="Text can be written with other tokens than the model chose. An answer that was made into "
        "tokens again is trained on tokens that nobody drew, with log-probs that belong to others: TRL#5224, "
        "SkyRL#123, slime#117, prime-rl#1352.",
        mend="Hand on the ids of the rollout and never its text; a sampler of your own must return the ids "
        "that it drew, each with its log-prob.",
        look=own_tokens,
    ),
    Check(
        name="stops",
        proves="An answer ends at every token that the model's files, its tokenizer or its training name as "
        "an end, counts as ended there, and ends at no ordinary token.",
        matters="Chat models often have several ends. Where one is missing, finished answers run on to the "
        "limit and count as cut: TRL#7039 saw 97 % of them cut, and masked, in Phi-3.5 and Gemma 3.",
        mend="Write every end into eos_token_id of generation_config.json in the model's folder, as a list.",
        look=stops,
    ),
    Check(
        name="draws-as-told",
        proves="Tokens are drawn as often as the model and the sampling settings say; a seed gives the same "
        "answers again, and another seed gives others.",
        matters="A setting that is accepted and not obeyed, or one random number for all answers, shows in "
        "no loss: groups are all alike, or far too wild. TRL#4159 and TRL#6789 began with settings that "
        "sampler and trainer read unlike; verl#3126 is about seeds that do not hold.",
        mend="Look at the sampling settings (--draw.temperature, --draw.top-k, --draw.top-p, --draw.min-p). "
        "A sampler of your own must draw each answer with numbers of its own, made from the seed.",
        look=as_told,
    ),
)
"""Checks of the sampler."""
