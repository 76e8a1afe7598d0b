"""Who says which of two answers is better: the truth, a reward, a function, a model behind a server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from statistics import fmean
from typing import Any

from plaudit.data.judging import Judge, NoVerdict, Orders, Verdict, first_probability, outcomes
from plaudit.data.records import Task, plain_text
from plaudit.engine.ranks import divide_rows, of_all_ranks
from plaudit.errors import UserError
from plaudit.evaluation.policies import win_rate
from plaudit.evaluation.policies.generate import EvaluationPrompt, PolicyCompletions
from plaudit.evaluation.policies.result import Contest
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.stats import Resampling
from plaudit.models.load import architectures
from plaudit.rewards.base import Reward
from plaudit.rewards.comparing import GOLD, in_both_orders, judge_named
from plaudit.rewards.kinds import JudgeSettings, is_judge_word, judge_kind
from plaudit.rewards.load import check_reward, loaded_model_folders, model_folder


def check_judge(spec: str, *, has_gold: bool) -> None:
    if spec == GOLD and not has_gold:
        raise UserError("gold judges where the true worth is known: with --world, or with --gold RULE")
    if is_judge_word(spec):
        judge_kind(spec).check(spec)
    elif Path(spec).is_dir():
        check_reward(Path(spec))
    elif spec != GOLD:
        judge_named(spec)


def load_judge(
    word: str, loaded_rewards: Mapping[str, Reward] | None = None, settings: JudgeSettings | None = None
) -> Judge:
    """The judge of a word, with chances where it has them, and asked in both orders where they matter.

    ``loaded_rewards`` has those that are there already, by their words; gold has to be among them.

    >>> load_judge("length:1-20").name
    'length:1-20'
    """
    chosen = replace(settings or JudgeSettings(), rewards=loaded_rewards or {}, soft=True)
    return in_both_orders(judge_named(word, chosen))


def judge_pairs(
    judge: Judge,
    prompts: Sequence[EvaluationPrompt],
    pairs: Mapping[tuple[str, str], tuple[PolicyCompletions, PolicyCompletions]],
) -> dict[tuple[str, str], list[win_rate.JudgedPair]]:
    """Has a judge compare every pair of policies, answer by answer, in one call for all of them."""
    answer_pairs = [
        (names, *pair) for names, policies in pairs.items() for pair in _answer_pairs(prompts, *policies)
    ]
    # One call over all pairs of policies: a server's requests and a model's passes fill up across them.
    judged = divided_outcomes(
        judge, [prompt.task((mine, theirs)) for _, prompt, mine, theirs in answer_pairs]
    )
    duels_by_pair: dict[tuple[str, str], list[win_rate.JudgedPair]] = {names: [] for names in pairs}
    for (names, prompt, mine, theirs), outcome in zip(answer_pairs, judged, strict=True):
        duels_by_pair[names].append(_duel(prompt, mine[0], theirs[0], outcome))
    return duels_by_pair


def agreement_with_people(
    judge: Judge, pairs: Sequence[ScoredPair], resampling: Resampling
) -> tuple[Contest, tuple[win_rate.JudgedPair, ...]]:
    """How often a judge prefers what people preferred, as a contest of their choice with the other answer.
    ``raw`` is the accuracy, in which a tie of the judge counts one half."""
    judged = judged_against_people(judge, pairs)
    names = ("preferred by people", "the other answer", judge.name)
    contest = win_rate.contest_result(names, judged, resampling, sees_order=sees_order(judge))
    return replace(contest, notes=(*contest.notes, *judge_notes(judge))), judged


def judged_against_people(judge: Judge, pairs: Sequence[ScoredPair]) -> tuple[win_rate.JudgedPair, ...]:
    """A judge's verdicts on pairs that people decided, ``mine`` being what they preferred.
    Pairs that people called a tie say nothing of it and are left out."""
    decided = [pair for pair in pairs if pair.p_first != 0.5]
    duels = [(pair, *(pair.answers if pair.p_first > 0.5 else pair.answers[::-1])) for pair in decided]
    tasks = [
        EvaluationPrompt(prompt=pair.prompt, category=pair.category).task(((preferred, True), (other, True)))
        for pair, preferred, other in duels
    ]
    judged = tuple(
        _duel(pair, preferred, other, outcome)
        for (pair, preferred, other), outcome in zip(duels, divided_outcomes(judge, tasks), strict=True)
    )
    if not win_rate.with_verdict(judged):
        counts = win_rate.missing_verdicts(judged).items()
        reasons = ", ".join(f"{count} {why}" for why, count in counts) or "all are ties"
        raise UserError(f"{judge.name} has no verdict on any pair that people decided ({reasons})")
    return judged


def divided_outcomes(judge: Judge, tasks: Sequence[Task], seed: int = 0) -> list[Verdict | NoVerdict]:
    """By as many ranks as rows are divided over, each with the seeds of its places."""

    def judged(part: Sequence[Task], begin: int) -> list[tuple[Verdict | None, NoVerdict | None]]:
        verdicts = outcomes(judge, part, seed + begin)
        return [(None, each) if isinstance(each, NoVerdict) else (each, None) for each in verdicts]

    pairs = divide_rows(tasks, judged, tuple[Verdict | None, NoVerdict | None])
    return [each for pair in pairs for each in pair if each is not None]


def judge_notes(judge: Judge) -> tuple[str, ...]:
    """What a judge says of its own verdicts so far: that a server gave no log-probs, say."""
    return tuple(dict.fromkeys(of_all_ranks(getattr(judge, "notes", ()), str)))


def error_note(name: str) -> str:
    """What has to be said of figures that a judge's word alone stands for."""
    return (
        f"{name} errs as all judges do, and the intervals know nothing of how often: plaudit judge --card "
        "measures it on labels of people"
    )


def family_note(judge: str, name: str, policies: Mapping[str, Path]) -> str | None:
    """A note on a judge that is, or is of the family of, policies that it judges; None where nothing is known
    of it. A model prefers answers of its own kind (Panickssery et al. 2024, arXiv:2404.13076)."""
    folders = {policy: model_folder(folder) for policy, folder in policies.items()}
    families = {policy: _family(folder) for policy, folder in folders.items()}
    same_family = [policy for policy, family in families.items() if family and _is_of_family(judge, family)]
    if not same_family:
        return None
    itself = [policy for policy in same_family if _is_model(judge, folders[policy])]
    kin = [policy for policy in same_family if policy not in itself]
    parts = [f"the very model of {', '.join(itself)}"] if itself else []
    parts += [f"of the same family of models as {', '.join(kin)}"] if kin else []
    return f"{name} is {' and '.join(parts)}; a judge may prefer its own kind"


def _is_model(judge: str, policy: Path) -> bool:
    if not is_judge_word(judge):
        return False
    if members := judge_kind(judge).members(judge):
        return any(_is_model(member, policy) for member in members)
    model = judge_kind(judge).model(judge)
    return isinstance(model, Path) and model_folder(model).resolve() == policy.resolve()


def _is_of_family(judge: str, family: str) -> bool:
    if not is_judge_word(judge):
        folders = loaded_model_folders(Path(judge)) if Path(judge).is_dir() else ()
        return any(_family(folder) == family for folder in folders)
    if members := judge_kind(judge).members(judge):
        return any(_is_of_family(member, family) for member in members)
    model = judge_kind(judge).model(judge)
    if isinstance(model, Path):
        return _family(model_folder(model)) == family
    return model is not None and family in model.lower()


def _family(folder: Path) -> str | None:
    class_names = architectures(folder)
    if not class_names:
        return None
    # LlamaForCausalLM and GPT2LMHeadModel both leave their stem; without its digits Qwen2 and Qwen3 are kin.
    stem = class_names[0].partition("For")[0].removesuffix("LMHeadModel").lower()
    return stem.rstrip("0123456789") or None


def _answer_pairs(
    prompts: Sequence[EvaluationPrompt], mine: PolicyCompletions, theirs: PolicyCompletions
) -> list[tuple[EvaluationPrompt, tuple[str, bool], tuple[str, bool]]]:
    return [
        (
            prompt,
            (my_rollout.answer.text, my_rollout.answer.ended),
            (their_rollout.answer.text, their_rollout.answer.ended),
        )
        for prompt, my_rollouts, their_rollouts in zip(prompts, mine.rollouts, theirs.rollouts, strict=True)
        for my_rollout, their_rollout in zip(my_rollouts, their_rollouts, strict=True)
    ]


def sees_order(judge: Judge) -> bool:
    """Whether the place of an answer may sway a judge, so that what both orders say is worth a figure."""
    return bool(getattr(judge, "asks_both_orders", False))


def _duel(
    about: EvaluationPrompt | ScoredPair, mine: str, theirs: str, outcome: Verdict | NoVerdict
) -> win_rate.JudgedPair:
    """What a judge says in either order, and of both; the same twice where it was not asked so."""
    is_missing = isinstance(outcome, NoVerdict)
    p_first = None if is_missing else first_probability(outcome)
    orders = outcome.orders or Orders(forward=p_first, backward=p_first)
    return win_rate.JudgedPair(
        prompt=plain_text(about.prompt),
        category=about.category,
        mine=mine,
        theirs=theirs,
        forward=orders.forward,
        backward=orders.backward,
        joined=p_first,
        reason=outcome.reason if is_missing else None,
    )


FEWEST, MOST = 3, 8
"""Policies of which an order says something, and up to which all orders are gone through."""


def order_notes(
    duels_by_judge: Mapping[str, win_rate.DuelsByPair], names: Mapping[str, str]
) -> Iterator[str]:
    """A sentence for each two judges: Spearman's ρ of their orders, and how often chance reaches it.
    Judges that often differ on single pairs may still order policies alike (Zheng et al. 2023,
    arXiv:2306.05685). names: what to call each judge."""
    shares = {judge: win_shares(duels) for judge, duels in duels_by_judge.items()}
    for first, second in combinations(shares, 2):
        policies = [policy for policy in shares[first] if policy in shares[second]]
        if len(policies) < FEWEST:
            continue
        mine, theirs = ([shares[judge][policy] for policy in policies] for judge in (first, second))
        rho = spearman(mine, theirs)
        both = f"{names[first]} and {names[second]}"
        if rho is None:
            yield f"{both}: one of them likes all {len(policies)} policies alike, and gives no order"
            continue
        reached = share_of_orders(mine, theirs) if len(policies) <= MOST else None
        few = "" if reached is None else f"; orders by chance reach that in {reached:.0%} of cases"
        yield f"{both} order {len(policies)} policies with ρ = {rho:.2f} (Spearman){few}"


def win_shares(duels: win_rate.DuelsByPair) -> dict[str, float]:
    """How often each policy is preferred to the one that all are compared with, which has one half itself.

    >>> from plaudit.evaluation.policies import win_rate
    >>> won = [win_rate.JudgedPair(prompt="q", mine="x", theirs="y", forward=1.0, backward=1.0)]
    >>> win_shares({("ppo", "sft"): won})
    {'sft': 0.5, 'ppo': 1.0}
    """
    baseline = next((other for _, other in duels), "")
    shares = {baseline: 0.5} if duels else {}
    for (policy, other), pairs in duels.items():
        verdicts = [pair.verdict for pair in win_rate.with_verdict(pairs) if pair.verdict is not None]
        if other == baseline and verdicts:
            shares[policy] = fmean(verdicts)
    return shares


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's ρ, equal numbers at their mean rank; None where all of one are equal.

    >>> round(spearman([0.1, 0.5, 0.9, 0.7], [0.2, 0.4, 0.6, 0.8]), 6)
    0.8
    """
    from scipy.stats import spearmanr

    if len({*x}) == 1 or len({*y}) == 1:
        return None
    correlation: Any = spearmanr(x, y)
    return float(correlation.statistic)


def share_of_orders(x: Sequence[float], y: Sequence[float]) -> float:
    """The share of all orders of y that go together with x at least as well as y does.

    >>> share_of_orders([1.0, 2.0, 3.0], [0.1, 0.2, 0.9]) == 1 / 6
    True
    """
    from scipy.stats import rankdata

    ranks_x, ranks_y = rankdata(x).tolist(), rankdata(y).tolist()

    def together(order: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(ranks_x, order, strict=True))

    reached = together(ranks_y) - 1e-9
    reaches = [together(order) >= reached for order in permutations(ranks_y)]
    return sum(reaches) / len(reaches)
