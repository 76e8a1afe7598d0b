"""What the stages of rows, of combined rewards and of evaluations are given."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.bounds import FromOne, Share, check_bounds
from plaudit.data.records import UNSAFE, Safety
from plaudit.errors import UserError
from plaudit.evaluation.policies import WORLD, WORLD_PROMPTS, WRITTEN, PolicyWord, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSettings:
    """A file of any layout, checked, as rows of plaudit's own."""

    data: Path
    """The file: JSONL, JSON, CSV, Parquet or a datasets folder."""
    format: str | None = None
    """Its layout; none: told from the rows, and said."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    threshold: Share = 0.01
    """Above this share of bad rows the stage fails; the bad ones lie in quarantine.jsonl."""
    split: str | None = None
    """Which split of a datasets folder."""
    ties: Literal["soft", "drop"] = "soft"
    """What becomes of ties."""
    safety: Safety | None = None
    """Only such rows, by what their answers were reported for, or thumbs in place of them."""
    unsafe: tuple[str, ...] = UNSAFE
    """The flags that count there."""
    preferred: bool = False
    """Keep the preferred answers alone, as demonstrations."""
    n: FromOne | None = None
    """At most so many records, drawn by chance; none: all of them."""
    seed: int = 0
    """The seed of that random choice."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSettings:
    how: Literal["mean", "min", "cautious", "weighted", "gated", "implicit"] = "mean"
    """What the members say together; implicit: β (log π − log π_ref) of a policy and its reference,
    or β log π of a policy alone."""
    members: tuple[str, ...] = ()
    """The rewards that are combined."""
    weights: tuple[float, ...] = ()
    """weighted: one for each member."""
    k: float | None = None
    """cautious: how many deviations are taken off; none: 1."""
    gate: int | None = None
    """gated: which of two members decides, 0 or 1."""
    below: float | None = None
    """gated: under this score the gate's own is what counts."""
    normalise: Path | None = None
    """Rows on whose answers each reward is brought to mean 0 and deviation 1 first; none: as they are."""
    policy: Path | None = None
    """implicit: the policy that was trained."""
    reference: Path | None = None
    """implicit: what it began as; none: likelihood alone is the reward."""
    beta: float | None = None
    """implicit: that of its training; none: 0.1."""
    device: str = "auto"
    """Where rewards score the rows of normalise: cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""

    def __post_init__(self) -> None:
        implicit = self.how == "implicit"
        if implicit and self.policy is None:
            raise UserError("how implicit needs a policy")
        if implicit == bool(self.members):
            raise UserError(f"how {self.how} is made of {'policies' if implicit else 'members'}")
        of_one_way = {"weights": "weighted", "k": "cautious", "gate": "gated", "below": "gated"}
        unread = ("members", "normalise") if implicit else ("policy", "reference", "beta")
        for name in (*unread, *(name for name, how in of_one_way.items() if how != self.how)):
            if getattr(self, name) not in (None, ()):
                raise UserError(f"{name} says nothing to how {self.how}; leave it out")
        if self.how == "gated" and (self.gate not in (0, 1) or self.below is None or len(self.members) != 2):
            raise UserError("how gated takes two members, gate (0 or 1) and below, a score of the gate")
        if self.how == "weighted" and len(self.weights) != len(self.members):
            raise UserError(f"{len(self.members)} members want as many weights, not {len(self.weights)}")

    @property
    def scale(self) -> float:
        return 0.1 if self.beta is None else self.beta

    @property
    def deviations(self) -> float | None:
        return 1.0 if self.how == "cautious" and self.k is None else self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """Policies judged on prompts that none of them was trained on."""

    policies: tuple[str, ...] = ()
    """The models, in the order of the tables; written: the answers that the rows of prompts hold."""
    policy: tuple[str, ...] = ()
    """Prompted policies: NAME=MODEL,system=TEXT or FILE,shots=FILE of demonstrations."""
    against: tuple[str, ...] = ()
    """Those that all others are compared with; the first is the reference of KL. None: the first policy."""
    judge: tuple[str, ...] = ()
    """Who compares: gold (the world's truth), a reward, module:function, openai:http://host/v1#model;
    none: gold where the truth is known, and else the reward."""
    token_from: str | None = None
    """Environment variable with the token of an openai: judge."""
    people: Path | None = None
    """Labels of people on some of these pairs of answers: they correct the win rates of judges that err."""
    card: tuple[Path, ...] = ()
    """Where there are none: cards of judges, as plaudit judge --card makes them."""
    reward: Path | None = None
    """A learnt reward whose scores are shown beside."""
    prompts: Path | None = None
    """Rows with prompts; none: the world's, of a split."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    choices: Path | None = None
    """Questions with a closed set of answers, {"prompt", "choices", "right"}; none: of the world its
    facts and sums, of other prompts nothing."""
    gold: str | None = None
    """Who knows the true worth: world, a rule, module:function; none: the world of its own prompts."""
    split: Split = "test"
    """Whose prompts, where they are the world's."""
    n: FromOne = WORLD_PROMPTS
    """How many prompts; fewer where there are fewer."""
    answers: FromOne = 1
    """Answers to each of them, of each policy."""
    seeds: FromOne = 1
    """How often all is drawn, each time by another chance."""
    temperature: float = 1.0
    """Scores are divided by it when answers are drawn; 0 takes the likeliest."""
    max_tokens: FromOne = 64
    """An answer that has not ended after so many tokens is cut."""
    best_of: int | None = None
    """Answers of the reference from which the reward takes the best; none: those that are drawn anyway."""
    right: str | None = None
    """A rule that says which answers are right: pass@k, with several answers."""
    pass_at: tuple[int, ...] = ()
    """The k of pass@k; none: 1, 2, 4 … and all answers to a prompt."""
    bootstrap: int = 1000
    """How often prompts are drawn anew for an interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers of the matrix products."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.bootstrap < 2:
            raise UserError(f"bootstrap {self.bootstrap}: 2 or more, 1000 for a steady interval")
        self._refuse_bad_names()
        if self.pass_at and self.right is None:
            raise UserError("pass_at needs a rule that says which answers are right: right: RULE")
        if not all(1 <= k <= self.answers * self.seeds for k in self.pass_at):
            raise UserError(
                f"pass_at {', '.join(map(str, self.pass_at))}: from 1 to the {self.answers * self.seeds} "
                "answers to every prompt (answers, times seeds)"
            )
        if self.true_worth is None and "gold" in self.judge:
            raise UserError(
                "judge gold: nobody knows the true worth of answers to these prompts; say gold: world, a "
                "rule or module:function, or name another judge"
            )

    @property
    def judges(self) -> tuple[str, ...]:
        """Who compares; nobody, where neither the truth nor a reward is there."""
        otherwise = "gold" if self.true_worth is not None else self.reward
        return self.judge or (() if otherwise is None else (str(otherwise),))

    def _refuse_bad_names(self) -> None:
        named = (*self.policies, *(PolicyWord.parse(word).name for word in self.policy))
        if len(set(named)) < len(named) or not named:
            raise UserError("policies: name each model once, and at least one")
        for other in self.against:
            if other not in named:
                raise UserError(f"against {other}: it is none of the policies {', '.join(named)}")
        if WRITTEN in self.policies and self.prompts is None:
            raise UserError(
                f"policies: {WRITTEN} are the answers that rows hold, and the world's prompts have none: "
                "give prompts: FILE"
            )

    @property
    def true_worth(self) -> str | None:
        """Who knows the true worth of answers; None where nobody does."""
        return self.gold or (None if self.prompts is not None else WORLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRewardSettings:
    """Reward models judged on comparisons that none of them was trained on."""

    models: tuple[str, ...]
    """The rewards that are evaluated, and judges that compare: a function, openai:http://host/v1#model."""
    token_from: str | None = None
    """Environment variable with the token of an openai: judge."""
    data: Path
    """Comparisons or rankings."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    world: bool = False
    """Whether the prompts are the world's: then the true utility is looked at too."""
    best_of: int | None = None
    """Of the world: answers to choose from; none: 16."""
    n: int | None = None
    """At most so many records, drawn by chance."""
    threshold: float = 0.01
    """The share of bad rows that may be."""
    bootstrap: int = 1000
    """How often prompts are drawn anew for an interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        if self.best_of is not None and not self.world:
            raise UserError("best_of needs the true utility of answers: it goes with world")
        if self.bootstrap < 2:
            raise UserError(f"bootstrap {self.bootstrap}: 2 or more, 1000 for a steady interval")
        if not self.models:
            raise UserError("models: name at least one reward")
