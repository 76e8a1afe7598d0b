"""Evaluates policies on the same prompts: generates, scores and compares completions, in one record.

The record holds the best-of-n curve of the reference where a reward chooses among its answers, and notes that
a reader has to know before believing the figures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from plaudit.data.judging import Judge
from plaudit.data.transforms import some_of
from plaudit.errors import UserError
from plaudit.evaluation.policies import generate, win_rate
from plaudit.evaluation.policies.corrected import FEWEST_LABELS, PeopleLabels
from plaudit.evaluation.policies.diversity import common_word_count
from plaudit.evaluation.policies.judge import (
    error_note,
    family_note,
    judge_notes,
    judge_pairs,
    order_notes,
    sees_order,
)
from plaudit.evaluation.policies.judge_card import cards_of, contest_correction
from plaudit.evaluation.policies.kl import CompletionScores, score_rollouts
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, EncodedChoices
from plaudit.evaluation.policies.over_optimisation import OverOptimisation, best_of_n_over_optimisation
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, Rating
from plaudit.evaluation.policies.scores import (
    AnswerScores,
    PolicyEvaluationData,
    answer_rows,
    answers_by_prompt,
    behind_prompts_of,
    count_missing,
    has_own_context,
    policy_figures,
    right_answers,
    score_answers,
    why_no_kl,
    why_no_passes,
)
from plaudit.evaluation.reward_models.accuracy import best_of_n_curve
from plaudit.evaluation.reward_models.pairs import divided_refusals, score_tasks
from plaudit.evaluation.reward_models.result import BestOfNCurve
from plaudit.evaluation.stats import Resampling
from plaudit.models.reward_model import first_differing_token
from plaudit.rewards.base import Reward
from plaudit.rewards.comparing import RewardJudge
from plaudit.rollouts.sampler import Rollout

PolicyPair = tuple[str, str]
"""The policy whose wins are counted, and the one that it is compared with."""
Duels = Mapping[str, Mapping[PolicyPair, Sequence[win_rate.JudgedPair]]]
"""What each judge, by the word that named it, said of the answers of each pair."""
Prompts = Sequence[generate.EvaluationPrompt]
Models = Mapping[str, Path | generate.Contestant]
MIN_PROMPTS = 30
"""Prompts below which an interval says little."""


def evaluation_notes(
    data: PolicyEvaluationData,
    duels_by_judge: Duels,
    judges: Mapping[str, Judge],
    settings: generate.GenerationSettings,
    contests: Sequence[Contest] = (),
) -> tuple[str, ...]:
    """Sentences, the most general first."""
    return (
        *_prompt_notes(data),
        *_contestant_notes(data),
        *_kl_notes(data, settings),
        *_missing_score_notes("gold", data.gold),
        *_missing_score_notes("the reward", data.reward),
        *_pass_notes(data),
        *_judge_notes(
            data, duels_by_judge, judges, {contest.judge for contest in contests if contest.uncorrected}
        ),
    )


def _rated(
    duels_by_judge: Duels,
    corrected: Mapping[str, win_rate.CorrectedByPair],
    contests: Sequence[Contest],
    resampling: Resampling,
) -> tuple[tuple[Rating, ...], tuple[str, ...]]:
    """Ratings by the first judge, of corrected win rates where every one is, and what to say of them."""
    judge, duels = next(iter(duels_by_judge.items()), ("", {}))
    if len({name for pair in duels for name in pair}) < 3:
        return (), ()
    used = corrected[judge] if corrected[judge].keys() == duels.keys() else None
    raw = win_rate.elo_ratings(duels, resampling)
    ratings = raw if used is None else win_rate.elo_ratings(duels, resampling, used)
    if not ratings:
        return (), (f"no ratings: {win_rate.why_unrated(duels, used)}",)
    if used is not None:
        words = ", ".join(f"{each.name} {each.elo:.0f}" for each in raw)
        return ratings, (f"ratings are of corrected win rates; of raw verdicts they are: {words or 'none'}",)
    errs = contests[0].uncorrected or contests[0].corrected is not None
    return raw, ("ratings are of raw verdicts, whose errors nothing corrects for all pairs",) if errs else ()


def _prompt_notes(data: PolicyEvaluationData) -> Iterator[str]:
    if len(data.prompts) < MIN_PROMPTS:
        yield f"{len(data.prompts)} prompts are few: believe the intervals, and not even them too much"
    if not data.gold:
        yield (
            "nobody knows the true worth of these answers: the figures say what judges and rewards like, "
            "and each of them can be gamed"
        )
    (first, info), *others = [
        (policy.name, policy.encoder.info) for policy in data.policies if policy.encoder
    ]
    other_tokenizers = [name for name, other in others if first_differing_token(other, info) is not None]
    if other_tokenizers:
        yield (
            f"{', '.join(other_tokenizers)}: another tokenizer than that of {first}; lengths and "
            "entropies in its tokens do not compare, and answers are drawn with other random numbers"
        )


def _contestant_notes(data: PolicyEvaluationData) -> Iterator[str]:
    counter = next(policy.name for policy in data.policies if policy.encoder is not None)
    for policy in data.policies:
        contestant = policy.contestant
        if policy.encoder is None:
            yield (
                f"{policy.name} are the answers that the rows hold, one to each prompt, in tokens of "
                f"{counter}; nobody drew them, so they have no KL and no entropy"
            )
        elif contestant.has_context:
            parts = ["a system turn"] * (contestant.system is not None)
            parts += [f"{len(contestant.shots)} examples"] * bool(contestant.shots)
            yield f"{policy.name} is {contestant.folder} with {' and '.join(parts)} before every prompt"


def _pass_notes(data: PolicyEvaluationData) -> Iterator[str]:
    for name, scores in data.right.items():
        if (reason := why_no_passes(scores)) is not None:
            yield f"no pass@k of {name}: {reason}"
        elif left_out := sum(None in row for row in scores):
            yield (
                f"pass@k of {name} leaves out {left_out} of {len(scores)} prompts, since an answer to them "
                "has no verdict"
            )


def _kl_notes(data: PolicyEvaluationData, settings: generate.GenerationSettings) -> Iterator[str]:
    if not settings.sampling.is_unrestricted:
        yield (
            f"no KL and no entropy: answers were drawn with {settings.description}, and both need answers "
            "from the whole distribution (--temperature 1 and nothing cut)"
        )
        return
    if settings.temperature != 1:
        yield (
            f"KL and entropy are those of all models at temperature {settings.temperature:g}, at which "
            "answers were drawn; at temperature 1 they are others"
        )
    [reference] = [policy for policy in data.policies if policy.name == data.reference]
    # Said of written answers once, and not again for each policy.
    for policy in (policy for policy in data.policies if policy.encoder is not None):
        reason = why_no_kl(policy, reference, settings)
        if reason is not None:
            yield f"no KL of {policy.name} from {reference.name}: {reason}"
        elif policy is not reference and has_own_context(policy, reference):
            yield (
                f"KL of {policy.name} from {reference.name} is that of its answers to the same questions, "
                "which each of the two is asked in its own way"
            )


def _missing_score_notes(name: str, scores_by_policy: Mapping[str, AnswerScores]) -> Iterator[str]:
    missing_counts = {
        policy: count for policy, scores in scores_by_policy.items() if (count := count_missing(scores))
    }
    if missing_counts:
        counts = ", ".join(f"{count} of {policy}" for policy, count in missing_counts.items())
        yield f"answers without a verdict of {name}, which are in none of its figures: {counts}"


def _judge_notes(
    data: PolicyEvaluationData, duels_by_judge: Duels, judges: Mapping[str, Judge], uncorrected: Set[str]
) -> Iterator[str]:
    if len(data.policies) > 1 and not duels_by_judge:
        yield "nobody compared answers, so there is no win rate; name a judge"
    folders = {
        policy.name: policy.contestant.folder
        for policy in data.policies
        if policy.contestant.folder is not None
    }
    for judge_name in duels_by_judge:
        judge = judges[judge_name]
        if isinstance(judge, RewardJudge) and judge.log_odds:
            yield (
                f"{judge.name} judges by a learnt reward; of policies that were trained on it, its verdict "
                "says how well they please it, not how good they are"
            )
        if judge.name in uncorrected:
            yield error_note(judge.name)
        family = family_note(judge_name, judge.name, folders)
        if family is not None:
            yield family
    yield from order_notes(duels_by_judge, {word: judge.name for word, judge in judges.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorers:
    """Who scores and compares answers: the true utility, a learnt reward, judges.

    Example: ``Scorers(gold=truth(), reward=load_reward(Path("runs/reward")), judges={"gold": judge})``
    """

    gold: Reward | None = None
    """Who knows the true worth."""
    reward: Reward | None = None
    """A learnt reward, which policies may have been trained on."""
    judges: Mapping[str, Judge] = field(default_factory=dict[str, Judge])
    """Who compares answers, by the words that named them."""
    right: Reward | None = None
    """A rule that gives 1 to a right answer and 0 to another, or checks instructions: for pass@k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What is drawn, compared and shown.

    Example: ``EvaluationSettings(drawing=GenerationSettings(answers=2), against=("sft",), best_of=16)``
    """

    drawing: generate.GenerationSettings = field(default_factory=generate.GenerationSettings)
    """How answers are drawn."""
    against: tuple[str, ...] = ()
    """What others are compared with; the first is also what KL is measured from. Empty: the first policy."""
    resampling: Resampling = field(default_factory=Resampling)
    """How intervals are made."""
    shown: int = 20
    """Prompts that are shown with everybody's answers."""
    best_of: int = 0
    """Answers of the reference from which the reward chooses; 0 takes what is drawn anyway, if several."""
    closed: tuple[ChoiceQuestion, ...] = ()
    """Questions with choices, of which it is asked how sure policies are and how often right."""
    pass_at: tuple[int, ...] = ()
    """The k of pass@k; empty: 1, 2, 4 … and all answers to a prompt."""
    people: PeopleLabels | None = None
    """Labels of people on some of these pairs, by which judges' win rates are corrected."""
    cards: tuple[Path, ...] = ()
    """Cards of judges, which correct what no label does."""

    @property
    def passes(self) -> tuple[int, ...]:
        """The k of pass@k, none above the number of answers to a prompt."""
        answers = self.drawing.completions_per_prompt
        powers = (2**power for power in range(answers.bit_length()))
        return tuple(sorted(set(self.pass_at or (*powers, answers))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReferenceScores:
    name: str
    scores: Mapping[str, CompletionScores]
    rollouts: Sequence[Sequence[Rollout]]


def evaluate_policies(
    models: Models,
    prompts: Prompts,
    scorers: Scorers | None = None,
    settings: EvaluationSettings | None = None,
    on_progress: Callable[[str], None] = lambda sentence: None,
) -> PolicyEvaluation:
    """Evaluates policies, by their names, on these prompts; ``on_progress`` is called with a sentence on
    what goes on.
    """
    scorers, settings = scorers or Scorers(), settings or EvaluationSettings()
    check_policies(models, prompts, settings)
    policies = _all_completions(models, prompts, settings, on_progress)
    against = settings.against or (policies[0].name,)
    reference = _score_by_reference(against[0], policies, prompts, scorers, settings)
    scores_by_kind = {
        kind: score_answers(scorer, prompts, policies)
        for kind, scorer in (("gold", scorers.gold), ("reward", scorers.reward))
        if scorer is not None
    }
    right, instructions = right_answers(scorers.right, prompts, policies)
    data = PolicyEvaluationData(
        prompts=prompts,
        policies=policies,
        reference=against[0],
        reference_scores=reference.scores,
        gold=scores_by_kind.get("gold", {}),
        reward=scores_by_kind.get("reward", {}),
        right=right,
        instructions=instructions,
        pass_at=settings.passes,
    )
    duels_by_judge = _judge_pairs(scorers, prompts, policies, against, on_progress)
    return _policy_evaluation(data, duels_by_judge, reference, scorers, settings)


def _all_completions(
    models: Models, prompts: Prompts, settings: EvaluationSettings, on_progress: Callable[[str], None]
) -> list[generate.PolicyCompletions]:
    completions: dict[str, generate.PolicyCompletions] = {}
    contestants, encoded = _contestants(models), EncodedChoices()
    for name, contestant in contestants.items():
        if contestant.folder is not None:
            on_progress(f"{name} answers {len(prompts)} prompts")
            completions[name] = generate.generate_completions(
                name,
                contestant,
                prompts,
                settings.drawing,
                settings.closed,
                encoded=encoded,
                on_progress=on_progress,
            )
    # After the models: their tokens are counted as those of the first.
    encoder = next(iter(completions.values())).encoder
    assert encoder is not None
    for name in contestants.keys() - completions.keys():
        completions[name] = generate.written_completions(name, prompts, settings.drawing, encoder)
    return [completions[name] for name in contestants]


def _contestants(models: Models) -> dict[str, generate.Contestant]:
    return {
        name: model if isinstance(model, generate.Contestant) else generate.Contestant(folder=model)
        for name, model in models.items()
    }


def check_policies(models: Models, prompts: Prompts, settings: EvaluationSettings) -> None:
    """Raises `UserError`, before anything is loaded, about what cannot be evaluated."""
    if not models or not prompts:
        raise UserError("an evaluation needs at least one policy and one prompt")
    contestants = _contestants(models)
    if all(contestant.folder is None for contestant in contestants.values()):
        raise UserError("written answers alone compete with nobody: name a model beside them")
    for contestant in contestants.values():
        generate.check_contestant(contestant, prompts)
    unknown = [name for name in settings.against if name not in models]
    if unknown:
        raise UserError(f"no policy is called {unknown[0]!r}; there is {', '.join(models)}")
    if len({prompt.prompt for prompt in prompts}) < len(prompts):
        raise UserError("a prompt is there twice; ask each once, and for more answers to it")
    if max(settings.passes) > settings.drawing.completions_per_prompt:
        raise UserError(
            f"pass@{max(settings.passes)} needs as many answers to every prompt, and there are "
            f"{settings.drawing.completions_per_prompt}: raise --answers"
        )
    if settings.best_of:
        _check_best_of(contestants[(settings.against or tuple(contestants))[0]], settings)


def _check_best_of(reference: generate.Contestant, settings: EvaluationSettings) -> None:
    if settings.best_of < 2:
        raise UserError(f"best of {settings.best_of}: expected 2 answers or more to choose from")
    if reference.folder is None:
        raise UserError(
            f"best of {settings.best_of} takes more answers of the reference, and written answers are what "
            "they are: name a model first, or with --against"
        )
    if settings.drawing.sampling.greedy:
        raise UserError(
            f"best of {settings.best_of}: at temperature 0 all answers to a prompt are the same, so there is "
            "nothing to choose; raise the temperature"
        )


def _score_by_reference(
    name: str,
    policies: Sequence[generate.PolicyCompletions],
    prompts: Prompts,
    scorers: Scorers,
    settings: EvaluationSettings,
) -> _ReferenceScores:
    [reference] = [policy for policy in policies if policy.name == name]
    if reference.encoder is None:
        return _ReferenceScores(name=name, scores={}, rollouts=())
    scores: dict[str, CompletionScores] = {}
    if settings.drawing.sampling.is_unrestricted:
        # It has scored its own answers already; its KL from itself is 0 without a second look.
        scores[name] = reference.scores
    others = [
        policy
        for policy in policies
        if policy is not reference and why_no_kl(policy, reference, settings.drawing) is None
    ]
    # Without a reward to choose and a truth to judge by, more answers would be drawn for nothing.
    wanted_answers = settings.best_of if scorers.gold is not None and scorers.reward is not None else 0
    rollouts = reference.rollouts
    # Loaded a second time, and only where somebody needs its view: one model is in memory at a time.
    if others or wanted_answers > settings.drawing.completions_per_prompt:
        loaded = generate.load_policy_folder(reference.contestant, settings.drawing)
        for other in others:
            groups = behind_prompts_of(reference, other.rollouts)
            scores[other.name] = score_rollouts(
                loaded.policy, groups, temperature=settings.drawing.temperature
            )
        if wanted_answers > settings.drawing.completions_per_prompt:
            # From one seed alone: answers are counted for each seed, and several would multiply them.
            more_settings = generate.GenerationSettings(
                sampling=settings.drawing.sampling, answers=wanted_answers, seeds=settings.drawing.seeds[:1]
            )
            rollouts = generate.generate_rollouts(loaded, prompts, more_settings)
    return _ReferenceScores(name=name, scores=scores, rollouts=rollouts)


def _judge_pairs(
    scorers: Scorers,
    prompts: Prompts,
    policies: Sequence[generate.PolicyCompletions],
    against: Sequence[str],
    on_progress: Callable[[str], None],
) -> dict[str, dict[PolicyPair, list[win_rate.JudgedPair]]]:
    by_name = {policy.name: policy for policy in policies}
    pairs: dict[PolicyPair, tuple[generate.PolicyCompletions, generate.PolicyCompletions]] = {}
    for other in against:
        for name, policy in by_name.items():
            # The reverse would be the same contest seen from the other side, and judged twice.
            if name != other and (other, name) not in pairs:
                pairs[name, other] = policy, by_name[other]
    duels_by_judge: dict[str, dict[PolicyPair, list[win_rate.JudgedPair]]] = {}
    for judge_name, judge in scorers.judges.items() if pairs else ():
        on_progress(f"{judge.name} compares {sum(len(pair.rollouts) for pair, _ in pairs.values())} times")
        duels_by_judge[judge_name] = judge_pairs(judge, prompts, pairs)
    return duels_by_judge


def _policy_evaluation(
    data: PolicyEvaluationData,
    duels_by_judge: Duels,
    reference: _ReferenceScores,
    scorers: Scorers,
    settings: EvaluationSettings,
) -> PolicyEvaluation:
    cut_to = common_word_count([answers_by_prompt(policy) for policy in data.policies])
    first_judge_duels = next(iter(duels_by_judge.values()), {})
    all_rows = answer_rows(data, first_judge_duels)
    curve, over_optimisation_fit = _best_of_n(data, reference, scorers, settings)
    contests, corrected = _contest_results(duels_by_judge, scorers.judges, settings)
    ratings, rating_notes = _rated(duels_by_judge, corrected, contests, settings.resampling)
    notes = evaluation_notes(data, duels_by_judge, scorers.judges, settings.drawing, contests)
    named = (scorers.gold, scorers.reward, scorers.right)
    gold, reward, right = (None if scorer is None else scorer.name for scorer in named)
    firsts = all_rows[:: settings.drawing.completions_per_prompt]  # Of each prompt's answers, one row.
    return PolicyEvaluation(
        policies=tuple(policy_figures(policy, data, cut_to, settings.resampling) for policy in data.policies),
        reference=reference.name,
        gold=gold,
        reward=reward,
        prompts=len(data.prompts),
        answers=settings.drawing.completions_per_prompt,
        sampling=settings.drawing.description,
        seeds=settings.drawing.seeds,
        contests=contests,
        ratings=ratings,
        best_of=curve,
        over_optimisation=over_optimisation_fit,
        shown=tuple(some_of(firsts, settings.shown, f"shown {settings.resampling.seed}")),
        notes=(
            *notes,
            *(f"{right}: {times} × {why}" for why, times in divided_refusals(scorers.right).items()),
            *rating_notes,
        ),
        all_answers=all_rows,
        choice_logprobs=tuple(row for policy in data.policies for row in policy.choice_logprobs),
        right=right,
    )


def _contest_results(
    duels_by_judge: Duels, judges: Mapping[str, Judge], settings: EvaluationSettings
) -> tuple[tuple[Contest, ...], Mapping[str, win_rate.CorrectedByPair]]:
    """All contests, and by judge the corrected verdicts of those that have a correction."""
    verdicts: dict[str, dict[PolicyPair, win_rate.CorrectedVerdicts]] = {name: {} for name in duels_by_judge}
    cards = cards_of(judges, settings.cards)
    found = list[Contest]()
    every = (
        (name, pair, duels) for name, contests in duels_by_judge.items() for pair, duels in contests.items()
    )
    for name, pair, duels in every:
        judge = judges[name]
        names = (*pair, judge.name)
        contest = win_rate.contest_result(names, duels, settings.resampling, sees_order=sees_order(judge))
        # The truth and a rule do not err; whatever was learnt, or is asked, does.
        by_people = getattr(judge, "by_people", False)
        errs = not by_people and (not isinstance(judge, RewardJudge) or judge.log_odds)
        both = contest_correction(contest, duels, settings.people, cards.get(name)) if errs else None
        corrected, values = both or (None, None)
        if values is not None:
            verdicts[name][pair] = values
        by_group: Sequence[str] = getattr(judge, "contest_notes", lambda _: ())(duels)
        notes = (*contest.notes, *by_group, *judge_notes(judge))
        contest = replace(contest, notes=notes, corrected=corrected)
        found.append(replace(contest, uncorrected=errs and corrected is None))
    if settings.people is not None and not any(contest.corrected for contest in found):
        raise UserError(
            f"{settings.people.source}: fewer than {FEWEST_LABELS} prompts have labels of people in it; they "
            "must be of these very answers, as answers.jsonl has them"
        )
    return tuple(found), verdicts


def _best_of_n(
    data: PolicyEvaluationData, reference: _ReferenceScores, scorers: Scorers, settings: EvaluationSettings
) -> tuple[BestOfNCurve | None, OverOptimisation | None]:
    if scorers.gold is None or scorers.reward is None or len(next(iter(reference.rollouts), ())) < 2:
        return None, None
    chooser_and_judge = (scorers.reward, scorers.gold)
    tasks = [
        prompt.task((rollout.answer.text, rollout.answer.ended) for rollout in group)
        for prompt, group in zip(data.prompts, reference.rollouts, strict=True)
    ]
    proxies, truths = (score_tasks(tasks, scorer) for scorer in chooser_and_judge)
    curve = best_of_n_curve(tasks, proxies, truths, settings.resampling)
    return curve, best_of_n_over_optimisation(tasks, proxies, truths, settings.resampling)
