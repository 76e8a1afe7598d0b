"""The field's findings, each put to the embedded world: one table for the docs.

    python -m benchmarks.findings --out lab --seeds 5    # begun again, it goes on

For each seed one pipeline runs in ``lab/seeds``: the stages of `plaudit run` as they ship, and those that the
other findings need. What each claims, and where its figures have to lie, stands in `FINDINGS`;
intervals are Student's over the seeds, of figures that are paired over the prompts of a seed
(`benchmarks/claims.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.claims import Bounds, Figure, Finding, best_places
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, read_policy_evaluation
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Estimate
from plaudit.files.restored import restore
from plaudit.lab.world.demonstrators import demonstrator_pool
from plaudit.lab.world.exam import exam_prompts
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.prompts import question_of_prompt
from plaudit.runs.pipeline.read import DEFAULT_CONFIG
from plaudit.runs.pipeline.spec import Pipeline

SEEDS = 5
"""Runs of everything, unless the command says otherwise."""
CHANGES: tuple[str, ...] = ()
"""What beats the config, as ``plaudit run --set`` takes it: for a small run."""
RANKINGS, UNSEEN, RANKED = 300, 150, 4
"""Rankings that are learnt from, others that measure, and answers in each."""
CHOSEN_OF = 16
"""Answers from which the best is taken, to be one method among the others; AlpacaFarm takes it of 1,024."""
MOST = 256
"""Answers from which the best is taken at most, to see over-optimisation."""
NEAR = 0.05
"""Two policies are about as good if their true worth differs by less; the best possible worth is 1."""
STIENNON = "Stiennon et al. 2020, arXiv:2009.01325"
OUYANG = "Ouyang et al. 2022, arXiv:2203.02155"
GAO = "Gao et al. 2023, arXiv:2210.10760"
DUBOIS = "Dubois et al. 2023, arXiv:2305.14387"
IVISON = "Ivison et al. 2024, arXiv:2406.09279"
TAJWAR = "Tajwar et al. 2024, arXiv:2404.14367"
"""The papers whose findings these are."""
Settings = dict[str, Any]
"""A stage as it stands in the YAML file."""


def findings(lab: Lab) -> Table:
    """The field's findings, asked of this world."""
    seeds = range(lab.seeds or SEEDS)
    yield "finding", "claimed", f"measured ({len(seeds)} seeds)", "mark"
    read = Reader([seed_run(lab, seed) for seed in seeds])
    for finding in chain.from_iterable(find(read) for find in FINDINGS):
        yield finding.row


def seed_run(lab: Lab, seed: int) -> SeedRun:
    """The pipeline of a seed, as far as it has not run yet."""
    folder, pipeline = lab.piped("seeds", seed, pipeline_document(lab, seed), CHANGES)
    return SeedRun(folder=folder, pipeline=pipeline)


def pipeline_document(lab: Lab, seed: int) -> dict[str, Any]:
    """The shipped pipeline and the stages of the other findings, as YAML has them."""
    document = yaml.safe_load(DEFAULT_CONFIG.read_text("utf-8"))
    stages: dict[str, Settings] = {
        name: settings for stage in document["stages"] for name, settings in stage.items()
    }
    # These two look at what the stages after them make, so they come last.
    judged, evaluation = stages.pop("reward-judged"), stages.pop("evaluation")
    policies = [*evaluation["policies"], "$distilled", "$corpus-dpo", "$ptx"]
    stages |= {
        **methods_by_reward(stages),
        **comparisons_of_the_corpus(stages),
        **forgetting(stages, seed),
        **rankings(lab, stages["reward"], seed),
        "reward-judged": {**judged, "models": [*judged["models"], "$corpus-reward"]},
        "evaluation": {**evaluation, "policies": policies, "best-of": CHOSEN_OF, "weight": 70},
        "best-of-many": {**evaluation, "policies": ["$sft"], "best-of": MOST, "n": 40, "weight": 50},
    }
    return document | {"name": "findings", "stages": [{name: stages[name]} for name in stages]}


def methods_by_reward(stages: Mapping[str, Settings]) -> dict[str, Settings]:
    """Learning the best of n answers, and PPO without a leash: half the answers a round, twice the rate."""
    sft, ppo = stages["sft"], stages["ppo"]
    distilled = {
        **{name: ppo[name] for name in ("model", "prompts", "reward", "sample.rows")},
        "do": "best-of-n",
        "loop": {"answers": CHOSEN_OF, "prompts": 400},
        "sampling": ppo["draw"],
        "epochs": 2,
        "learning-rate": sft["learning-rate"],
        "weight": 40,
    }
    free = {"kl-coef": 0.0, "rounds": 30, "batch-size": 64, "learning-rate": 2 * float(ppo["learning-rate"])}
    return {"distilled": distilled, "free-ppo": {**ppo, **free, "evaluate-every": 4, "weight": 80}}


def comparisons_of_the_corpus(stages: Mapping[str, Settings]) -> dict[str, Settings]:
    """As many comparisons, by the same people, of answers that the model did not give."""
    own = {"model", "temperature"}
    rows = {name: value for name, value in stages["comparisons"].items() if name not in own}
    data = {"data": "$corpus-comparisons"}
    return {
        "corpus-comparisons": {**rows, "weight": 2},
        "corpus-reward": {**stages["reward"], **data},
        "corpus-dpo": {**stages["dpo"], **data},
    }


def forgetting(stages: Mapping[str, Settings], seed: int) -> dict[str, Settings]:
    """PPO with plain text beside it, and the loss on other plain text before and after."""
    plain = {"do": "world-rows", "make": "plain-text", "weight": 2}
    made: dict[str, Settings] = {
        "plain-text": {**plain, "n": 2000},
        "unseen-text": {**plain, "n": 300, "seed": 1_000_000 + seed},
        "ptx": {**stages["ppo"], "do": "ppo-ptx", "ptx.data": "$plain-text", "weight": 170},
    }
    for policy in ("sft", "ppo", "ptx"):
        # The step is too short to change a digit: what is wanted is the held-out figure of the model.
        made[f"text-{policy}"] = {
            **{"do": "sft", "model": f"${policy}", "data": "$plain-text", "held-out": "$unseen-text"},
            **{"steps": 1, "learning-rate": 1e-12, "sample.rows": 0, "allow": ["leaks"], "weight": 4},
        }
    return made


def rankings(lab: Lab, reward: Settings, seed: int) -> dict[str, Settings]:
    """The same rankings in one element each, and as single pairs, shuffled; as many pairs in each step."""
    learnt = lab.ranked("crowd", RANKINGS, answers=RANKED, seed=seed)
    unseen = lab.ranked("crowd", UNSEEN, answers=RANKED, split="test", seed=seed)
    left_out = {"ensemble", "epochs", "data"}
    usual = {name: value for name, value in reward.items() if name not in left_out}
    batch = 8
    # Twice through; as steps, since tied pairs are left out and would make the second run shorter.
    usual |= {"steps": 2 * RANKINGS // batch}
    return {
        "elements": {
            **usual,
            **{"data": str(learnt), "held-out": str(unseen), "batch-size": batch, "weight": 15},
        },
        "single-pairs": {
            **usual,
            **{"data": str(lab.in_pairs(learnt)), "held-out": str(lab.in_pairs(unseen))},
            **{"batch-size": batch * math.comb(RANKED, 2), "weight": 40},
        },
    }


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """What the pipeline of a seed has left behind.

    Example: ``SeedRun(folder=Path("lab/seeds/0"), pipeline=pipeline).worth("ppo")``
    """

    folder: Path
    """Its folder."""
    pipeline: Pipeline
    """What ran in it."""

    @cached_property
    def evaluation(self) -> PolicyEvaluation:
        """All policies on the same prompts, which nothing was trained on."""
        return read_policy_evaluation(self.folder / "stages" / "evaluation")

    @cached_property
    def rewards(self) -> Mapping[str, RewardEvaluation]:
        """Rewards on fresh comparisons, by name."""
        return judged_rewards(self.folder, "reward-judged")

    @cached_property
    def written(self) -> list[list[float]]:
        """The true worth of what each of the demonstrators writes, by prompt of the evaluation."""
        evaluated = self.pipeline.stage("evaluation").config({})
        prompts = exam_prompts(self.evaluation.prompts, split=evaluated.split, seed=evaluated.seed)
        questions = [question_of_prompt(prompt.prompt) for prompt in prompts]
        people = demonstrator_pool(self.pipeline.stage("demonstrations").config({}).demonstrators)
        return [
            [judge_answer(question, person.answer(question, evaluated.seed)).utility for person in people]
            for question in questions
        ]

    @property
    def demonstrators(self) -> float:
        """The mean true worth of what the demonstrators write to the prompts of the evaluation."""
        return fmean(worth for people in self.written for worth in people)

    def wins_over_demonstrators(self, policy: str) -> float:
        """How often a policy's answer is worth more than a demonstrator's to the same prompt; ties half."""
        rows = self.evaluation.all_answers
        # One answer to each prompt, or the rows were not in step with what was written.
        mine = [answer.gold for row in rows for answer in row.answers if answer.policy == policy]
        return fmean(
            math.nan if worth is None else (worth > other) + (worth == other) / 2
            for worth, people in zip(mine, self.written, strict=True)
            for other in people
        )

    def worth(self, policy: str) -> float:
        """The mean true worth of a policy's answers."""
        return value_of(next(found.gold for found in self.evaluation.policies if found.name == policy))

    def gain(self, policy: str) -> float:
        """How much more that is than of the fine-tuned model, on the same prompts."""
        return self.worth(policy) - self.worth("sft")

    @property
    def gain_of_best(self) -> float:
        """The same of the best of some answers by the reward, of the fine-tuned model itself."""
        worths = self.best_of("evaluation", "truth")
        return worths[-1] - worths[0]

    def contest(self, policy: str) -> Contest:
        """A policy against the fine-tuned model, by the truth."""
        return next(found for found in self.evaluation.contests if found.policy == policy)

    def best_of(self, stage: str, figure: str) -> list[float]:
        """A figure of the best of n answers by the reward, for n = 1, 2, 4 …"""
        curve = read_policy_evaluation(self.folder / "stages" / stage).best_of
        assert curve is not None, stage
        figures = [getattr(point, figure) for point in curve.points]
        return [value.value if isinstance(value, Estimate) else float(value) for value in figures]

    def looks(self, stage: str, metric: str) -> list[float]:
        """A held-out figure of a run at each look."""
        lines = (self.folder / "stages" / stage / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
        return [line[metric] for line in map(json.loads, lines) if metric in line]

    def accuracy(self, reward: str) -> float:
        """How often a reward is right about fresh comparisons of the fine-tuned model's answers."""
        return value_of(self.rewards[reward].accuracy)

    @property
    def ceiling(self) -> float:
        """How often any reward could be right about them."""
        return value_of(self.rewards["reward"].ceiling.accuracy)

    def text_loss(self, policy: str) -> float:
        """The loss on plain text that no policy has learnt from, a token."""
        return self.looks(f"text-{policy}", "held_out/loss")[-1]


def judged_rewards(folder: Path, stage: str) -> Mapping[str, RewardEvaluation]:
    """What a stage of a pipeline found about rewards, by name."""
    text = (folder / "stages" / stage / "summary.json").read_text("utf-8")
    found = [restore(RewardEvaluation, item) for item in json.loads(text)["evaluations"]]
    return {evaluation.model: evaluation for evaluation in found}


def value_of(estimate: Estimate | None) -> float:
    """Its value; not a number where there is none."""
    return math.nan if estimate is None else estimate.value


ABOVE, BELOW = Bounds(above=0), Bounds(below=0)
"""Of a difference: the first is larger, or smaller."""
AS_GOOD = Bounds(above=-NEAR, below=NEAR)
"""Of a difference of true worth: there is hardly any."""
METHODS = {"ppo": "PPO", "grpo": "GRPO", "dpo": "DPO"}
"""The ways to learn from comparisons, with their names in the table."""
PREFERRED = {
    "ppo": Bounds(above=0.70, mean_at_least=0.75),
    "grpo": Bounds(above=0.70, mean_at_least=0.75),
    "dpo": Bounds(above=0.65, mean_at_least=0.70),
}
"""Where the win rate of each lies if comparisons teach what demonstrations do not."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Figures of all seeds, by what each run says.

    Example: ``Reader(runs).figure("SFT", lambda run: run.worth("sft"))``
    """

    runs: Sequence[SeedRun]
    """A run of each seed."""

    def figure(self, name: str, measure: Callable[[SeedRun], float], bounds: Bounds | None = None) -> Figure:
        """A number of each run."""
        return Figure(name=name, values=[measure(run) for run in self.runs], bounds=bounds)

    def share(self, name: str, measure: Callable[[SeedRun], float], bounds: Bounds | None = None) -> Figure:
        """The same of a share."""
        return replace(self.figure(name, measure, bounds), percent=True)


def against_demonstrators(read: Reader) -> Iterator[Finding]:
    """Fine-tuning is as good as its demonstrators; feedback makes better answers than they can write."""
    yield Finding(
        name="SFT and its demonstrators",
        claimed=f"SFT is about as good as they are: true worth differs by less than {NEAR}",
        figures=(
            read.figure("demonstrators", lambda run: run.demonstrators),
            read.figure("SFT", lambda run: run.worth("sft")),
            read.figure("SFT − demonstrators", lambda run: run.worth("sft") - run.demonstrators, AS_GOOD),
        ),
    )
    yield Finding(
        name="better than the demonstrators",
        claimed="answers are worth more than those that people demonstrated, as summaries by RLHF were "
        f"preferred to the references that SFT had learnt from ({STIENNON})",
        figures=tuple(
            read.figure(
                f"{name} − demonstrators", lambda run, of=policy: run.worth(of) - run.demonstrators, ABOVE
            )
            for policy, name in METHODS.items()
        ),
    )


def as_in_tldr(read: Reader) -> Iterator[Finding]:
    """SFT and what comes of it, both against what people wrote: the measure of the TL;DR summaries."""
    yield Finding(
        name="from SFT to RLHF, as in TL;DR",
        claimed="against what people wrote SFT wins less than half and RLHF more: 43 % and 61 %, that SFT "
        f"model being five times as large ({STIENNON}); 33.0 % and 64.7 % by PPO (TRL's docs, a model of 1B)",
        figures=(
            read.share("SFT", lambda run: run.wins_over_demonstrators("sft"), Bounds(below=0.5)),
            *(
                read.share(name, lambda run, of=policy: run.wins_over_demonstrators(of), Bounds(above=0.5))
                for policy, name in METHODS.items()
            ),
            read.share(
                "PPO − SFT",
                lambda run: run.wins_over_demonstrators("ppo") - run.wins_over_demonstrators("sft"),
                ABOVE,
            ),
        ),
    )


def against_sft(read: Reader) -> Iterator[Finding]:
    """How often feedback's answers are preferred to those of the model that it began with."""
    for policy, name in METHODS.items():
        bounds = PREFERRED[policy]
        yield Finding(
            name=f"{name} against SFT",
            claimed=f"preferred to SFT ({DUBOIS if policy == 'dpo' else OUYANG}); by bounds of our own in "
            f"{bounds.mean_at_least:.0%} or more, ties half, with an interval above {bounds.above:.0%}",
            figures=(
                read.share("win rate", lambda run, of=policy: value_of(run.contest(of).raw), bounds),
                read.share("without ties", lambda run, of=policy: value_of(run.contest(of).decided)),
            ),
        )
    yield Finding(
        name="at equal length",
        claimed="length is not the reason: preferred to SFT also where answers are equally long; to its "
        f"references RLHF was preferred by some 5 points less, and still in about 65 % ({STIENNON})",
        figures=tuple(
            read.share(
                name, lambda run, of=policy: value_of(run.contest(of).length_controlled), Bounds(above=0.5)
            )
            for policy, name in METHODS.items()
        ),
    )


def order_of_methods(read: Reader) -> Iterator[Finding]:
    """Which method makes most of the same comparisons."""

    def lead(policy: str, other: str) -> Callable[[SeedRun], float]:
        return lambda run: value_of(run.contest(policy).raw) - value_of(run.contest(other).raw)

    yield Finding(
        name="the order of the methods",
        claimed="PPO comes out a little above DPO, by up to 2.5 points on mathematics and 1.2 elsewhere "
        f"({IVISON}); here in win rates against SFT",
        figures=(
            read.share("PPO − DPO", lead("ppo", "dpo"), ABOVE),
            read.share("PPO − GRPO", lead("ppo", "grpo")),
            read.share("GRPO − DPO", lead("grpo", "dpo")),
        ),
    )
    yield Finding(
        name="the methods of AlpacaFarm",
        claimed="DPO, PPO and the best of n gain over SFT, and about as much: 46.8, 46.8 and 45.0 % of "
        f"simulated wins, SFT 36.7 ({DUBOIS}, n = 1,024); here true worth differs by less than {NEAR}",
        figures=(
            read.figure("DPO − SFT", lambda run: run.gain("dpo"), ABOVE),
            read.figure("PPO − SFT", lambda run: run.gain("ppo"), ABOVE),
            read.figure(f"best of {CHOSEN_OF} − SFT", lambda run: run.gain_of_best, ABOVE),
            read.figure("PPO − DPO", lambda run: run.gain("ppo") - run.gain("dpo"), AS_GOOD),
            read.figure(
                f"best of {CHOSEN_OF} − PPO", lambda run: run.gain_of_best - run.gain("ppo"), AS_GOOD
            ),
        ),
    )
    yield Finding(
        name="expert iteration",
        claimed="SFT on the best of n gains less than DPO and PPO: 41.9 % of simulated wins, and they 46.8 "
        f"({DUBOIS}); here n = {CHOSEN_OF}",
        figures=(
            read.figure("expert iteration − SFT", lambda run: run.gain("distilled")),
            read.figure("expert iteration − DPO", lambda run: run.gain("distilled") - run.gain("dpo"), BELOW),
            read.figure("expert iteration − PPO", lambda run: run.gain("distilled") - run.gain("ppo"), BELOW),
        ),
    )


def rewards_of_a_crowd(read: Reader) -> Iterator[Finding]:
    """What a reward of comparisons is right about."""
    yield Finding(
        name="what a reward gets right",
        claimed="60 to 75 % of fresh comparisons: 72.4 % of those by the labelers that it learnt from, "
        f"69.6 % of others' ({OUYANG})",
        figures=(read.share("right", lambda run: run.accuracy("reward"), Bounds(above=0.60, below=0.75)),),
    )
    yield Finding(
        name="its ceiling",
        claimed="annotators who disagree set a ceiling: a reward is right in 72.4 % where they agree in "
        f"72.6 % ({OUYANG}), on news 66.5 and 66.9 % ({STIENNON}); here it stays below the best possible",
        figures=(
            read.share("ceiling", lambda run: run.ceiling),
            read.share("ceiling − reward", lambda run: run.ceiling - run.accuracy("reward"), ABOVE),
        ),
    )


def turn(true: Sequence[Sequence[float]], learnt: Sequence[Sequence[float]]) -> tuple[Figure, ...]:
    """How the true worth goes from the first point to the best and the last, and the reward with it.

    The best point of a run is that of the other runs' mean curve (`best_places`).
    """
    places = best_places(true)
    curves = list(zip(places, true, learnt, strict=True))
    return (
        Figure(name="worth: first", values=[worth[0] for worth in true]),
        Figure(name="best − first", values=[worth[at] - worth[0] for at, worth, _ in curves], bounds=ABOVE),
        Figure(name="last − best", values=[worth[-1] - worth[at] for at, worth, _ in curves], bounds=BELOW),
        Figure(
            name="reward: last − best",
            values=[reward[-1] - reward[at] for at, _, reward in curves],
            bounds=ABOVE,
        ),
    )


def over_optimised(read: Reader) -> Iterator[Finding]:
    """A learnt reward that is pleased too well."""
    claimed = f"over √KL the true worth rises and then falls, and the learnt reward still rises ({GAO})"
    truths, rewards, kls = (
        [run.best_of("best-of-many", name) for run in read.runs] for name in ("truth", "proxy", "kl")
    )
    places = best_places(truths)
    roots = [math.sqrt(kl[at]) for at, kl in zip(places, kls, strict=True)]
    yield Finding(
        name=f"over-optimised by best of 1 to {MOST}",
        claimed=claimed,
        figures=(*turn(truths, rewards), Figure(name="√KL at the best", values=roots)),
    )
    truths, rewards, roots = (
        [run.looks("free-ppo", f"held_out/{name}") for run in read.runs]
        for name in ("judge", "reward", "sqrt_kl")
    )
    places = best_places(truths)
    yield Finding(
        name="over-optimised by PPO without a leash",
        claimed=claimed,
        figures=(
            *turn(truths, rewards),
            Figure(name="√KL at the best", values=[root[at] for at, root in zip(places, roots, strict=True)]),
            Figure(name="√KL at the last", values=[root[-1] for root in roots]),
        ),
    )


def unlearning(read: Reader) -> Iterator[Finding]:
    """What PPO forgets, and what text mixed in retains."""
    yield Finding(
        name="PPO-ptx against forgetting",
        claimed="PPO forgets, and less so where pretraining text is mixed into its steps: there on public "
        f"NLP datasets ({OUYANG}), here by the loss on plain text",
        figures=(
            read.figure("loss: SFT", lambda run: run.text_loss("sft")),
            read.figure("PPO − SFT", lambda run: run.text_loss("ppo") - run.text_loss("sft"), ABOVE),
            read.figure("PPO-ptx − PPO", lambda run: run.text_loss("ptx") - run.text_loss("ppo"), BELOW),
            read.figure("worth: PPO-ptx − PPO", lambda run: run.gain("ptx") - run.gain("ppo")),
        ),
    )


def own_answers(read: Reader) -> Iterator[Finding]:
    """Comparisons of the model's own answers, and as many of others."""
    yield Finding(
        name="own answers compared, or others'",
        claimed=f"learning from the model's own answers beats learning from given ones ({TAJWAR}); here by "
        "as many comparisons of either, by the same people",
        figures=(
            read.figure(
                "worth: DPO by own − DPO by the corpus's",
                lambda run: run.gain("dpo") - run.gain("corpus-dpo"),
                ABOVE,
            ),
            read.share(
                "right: reward by own − reward by the corpus's",
                lambda run: run.accuracy("reward") - run.accuracy("corpus-reward"),
                ABOVE,
            ),
        ),
    )


def rankings_in_elements(read: Reader) -> Iterator[Finding]:
    """The same rankings, in one element each or as single pairs."""
    whole, pairs = (
        [run.looks(stage, "held_out/loss") for run in read.runs] for stage in ("elements", "single-pairs")
    )
    rises = [
        [losses[-1] - losses[at] for at, losses in zip(best_places(curves, min), curves, strict=True)]
        for curves in (whole, pairs)
    ]
    yield Finding(
        name="rankings in one element each",
        claimed=f"they overfit less than their pairs, shuffled, and lose less on held-out rows ({OUYANG})",
        figures=(
            Figure(name="held-out loss at the last look: elements", values=[losses[-1] for losses in whole]),
            Figure(
                name="elements − pairs",
                values=[mine[-1] - other[-1] for mine, other in zip(whole, pairs, strict=True)],
                bounds=BELOW,
            ),
            Figure(name="its rise from the best look: elements", values=rises[0]),
            Figure(
                name="elements − pairs of the rise",
                values=[mine - other for mine, other in zip(*rises, strict=True)],
                bounds=BELOW,
            ),
        ),
    )


FINDINGS = (
    against_demonstrators,
    as_in_tldr,
    against_sft,
    order_of_methods,
    rewards_of_a_crowd,
    over_optimised,
    unlearning,
    own_answers,
    rankings_in_elements,
)
"""Every row of the table, with the bounds that decide it."""
STUDIES = {"findings": findings}
"""The table."""


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
