"""The kinds of judges that this wing brings, by what their words begin with, and a judge as a reward.

``openai:URL#model``, ``model:DIR`` and ``call:FUNCTION`` are models that are asked in words; ``jury:FILE``
and ``spread:FILE`` are several judges together. `plaudit.feedback.wing` names them.

The newest model as the judge of its own answers (Yuan et al. 2024, arXiv:2401.10020).

It is asked for points, as any other model in a folder (``judge:model:DIR``), and gives the mean over the
chances of the points, to which the mean of many draws would come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from plaudit.data.generative_judging import CritiqueSettings, PairwiseRankerSettings
from plaudit.data.judging import Judge, NoVerdict, Verdict, first_probability, outcomes
from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.feedback.asking import ModelJudgeSettings, with_asking
from plaudit.feedback.judges.cache import reply_cache
from plaudit.feedback.judges.calling import ARGUMENTS, FunctionChat, source_of
from plaudit.feedback.judges.chat import endpoint_judge
from plaudit.feedback.judges.jury import assemble, read_jury
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import LETTERS, HowToAsk
from plaudit.feedback.judges.words import CALL, LOCAL, SERVER, parse_judge_word
from plaudit.feedback.judges.writing import Writer, check_writer
from plaudit.files.chat import parse_server
from plaudit.files.user_code import accepted_arguments
from plaudit.methods.iterative.config import SELF
from plaudit.rewards.base import RewardTraits, TaskScores, mean_if_complete
from plaudit.rewards.comparing import in_both_orders, judge_named
from plaudit.rewards.kinds import JudgeKind, JudgeSettings
from plaudit.rewards.llm.generative import LanguageJudgeSpec, refuse_same_replies
from plaudit.rewards.registry import resolve_function
from plaudit.rewards.word_files import function_pieces, refuse_circle, word_from
from plaudit.tokens.encode import make_encoder

_FILE_SETTINGS = ("rubric", "constitution", "preamble")
_OWN_CONSTITUTION = "ours"


def judge_reward(word: str, device: str, dtype: str) -> JudgeReward:
    """The judge of ``judge:WORD`` as a reward: it gives points where its word does not say otherwise."""
    settings = ModelJudgeSettings(device=device, dtype=dtype, soft=True, ask=HowToAsk(how="points"))
    return JudgeReward(judge=in_both_orders(judge_named(word.partition(":")[2], settings)))


def writer_named(word: str, settings: JudgeSettings | None = None) -> Writer:
    """The model of a word as a writer: ``openai:URL#model``, ``model:DIR`` or another that is asked in words.
    Its temperature and its most tokens are set behind commas; what the word leaves open is as in `Writer`."""
    check_writer(word)
    parsed = parse_judge_word(word)
    judge = judge_named(word, settings)
    assert isinstance(judge, ModelJudge), "whoever is asked in words, and is no jury"
    ask, names = parsed.how(), {name.replace("-", "_") for name in parsed.settings}
    given = {name: getattr(ask, name) for name in ("temperature", "max_tokens") if name in names}
    return Writer(asker=judge.asker, **given)


def _server(word: str, settings: JudgeSettings) -> ModelJudge:
    how = with_asking(settings)
    return endpoint_judge(word, reply_cache(how.cache), how.retry_policy, ask=how.ask, purse=how.purse)


def _check_server(word: str) -> None:
    parsed = parse_judge_word(word)
    parsed.how()
    parse_server(parsed.place)


def _server_model(word: str) -> str:
    # Of a model behind a server only its name is known, which stands behind the #.
    return parse_judge_word(word).place.partition("#")[2]


def _local(word: str, settings: JudgeSettings) -> ModelJudge:
    # Models are slow to import, and whoever only looks at words needs none.
    from plaudit.feedback.local_judge import local_judge

    how = with_asking(settings)
    where = {"device": how.device, "dtype": how.dtype}
    return local_judge(word, reply_cache(how.cache), **where, ask=how.ask, purse=how.purse)


def _check_local(word: str) -> None:
    from plaudit.rewards.load import model_folder

    parse_judge_word(word).how()
    if not model_folder(_place(word)).is_dir():
        raise UserError(f"{word}: there is no folder {_place(word)}; name that of a chat model")


def _call(word: str, settings: JudgeSettings) -> ModelJudge:
    model_settings, parsed = with_asking(settings), parse_judge_word(word)
    ask, function = parsed.how(model_settings.ask), parsed.place.removeprefix(CALL)
    asker = FunctionChat(
        word=function,
        function=resolve_function(function),
        cache=reply_cache(settings.cache),
        source=source_of(function),
        requests_at_once=ask.requests or 1,
        prices=ask.price,
        purse=model_settings.purse,
    )
    return ModelJudge(asker=asker, ask=ask)


def _check_call(word: str) -> None:
    parsed = parse_judge_word(word)
    parsed.how()
    place = parsed.place.removeprefix(CALL)
    accepted_arguments(place, resolve_function(place), ARGUMENTS, required=ARGUMENTS[:1])


def _several(word: str, settings: JudgeSettings) -> Judge:
    model_settings, path = with_asking(settings), _place(word)
    # Members give their chances, and those to whom the order of answers means something are asked twice.
    member = replace(model_settings, soft=True, ask=parse_judge_word(word).how(model_settings.ask))
    refuse_circle(word)
    return assemble(word, path, lambda own: in_both_orders(judge_named(word_from(own, path.parent), member)))


def _check_several(word: str) -> None:
    from plaudit.evaluation.policies.judge import check_judge

    parse_judge_word(word).how()
    for member in _members(word):
        kind = member.partition(":")[0]
        if kind in ("jury", "spread"):
            raise UserError(f"{word}: {member} is a {kind} itself; name its members")
        check_judge(member, has_gold=False)


def _members(word: str) -> list[str]:
    path = _place(word)
    return [word_from(member.judge, path.parent) for member in read_jury(path).members]


def _place(word: str) -> Path:
    return Path(parse_judge_word(word).place.partition(":")[2])


def _pieces(word: str) -> list[str | Path]:
    parsed = parse_judge_word(word)
    kind, _, place = parsed.place.partition(":")
    pieces: list[str | Path] = [f"{kind}:"]
    if word.startswith(CALL):
        pieces += function_pieces(place)
    else:
        # A stage of a pipeline is named by a sign and no path.
        pieces.append(place if word.startswith(SERVER) or place.startswith("$") else Path(place))
    for name, value in parsed.settings.items():
        is_file = name.replace("-", "_") in _FILE_SETTINGS and value != _OWN_CONSTITUTION
        pieces += [f",{name}=", Path(value) if is_file else value]
    return pieces


SERVER_KIND = JudgeKind(make=_server, check=_check_server, pieces=_pieces, model=_server_model)
"""A model behind an OpenAI-compatible server."""
LOCAL_KIND = JudgeKind(make=_local, check=_check_local, pieces=_pieces, model=_place)
"""A chat model in a folder of this machine."""
CALL_KIND = JudgeKind(make=_call, check=_check_call, pieces=_pieces)
"""A function of Python that replies as a model does."""
SEVERAL_KIND = JudgeKind(make=_several, check=_check_several, pieces=_pieces, members=_members)
"""A jury that votes, or a spread of which one speaks for each task."""


SINGLE_ANSWER = "one answer alone cannot be compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReward:
    """Any judge as a reward (direct RLAIF, Lee et al. 2023, arXiv:2309.00267): ``--reward judge:WORD``.
    A judge that gives points to single answers, or says whether they are right, is read as it is. One that
    compares scores an answer by its mean chance against the other answers to the same prompt."""

    judge: Judge
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)

    @property
    def name(self) -> str:
        return self.judge.name

    @property
    def traits(self) -> RewardTraits:
        """Each question may cost money; comparisons hang on the other answers."""
        return RewardTraits(exact=True, remote=True, compares_answers=not self._has_scores)

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers or pairs it held for so far."""
        return dict(self.reasons)

    @property
    def _has_scores(self) -> bool:
        return isinstance(self.judge, ModelJudge) and self.judge.mode.scoring is not None

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where the judge has no verdict."""
        return self._own_scores(tasks) if self._has_scores else self._mean_probabilities(tasks)

    def _own_scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        assert isinstance(self.judge, ModelJudge)
        rows = self.judge.scores(tasks)
        self.reasons.update(score.reason for row in rows for score in row if isinstance(score, NoVerdict))
        return tuple(tuple(None if isinstance(score, NoVerdict) else score for score in row) for row in rows)

    def _mean_probabilities(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        places = [
            (t, pair) for t, task in enumerate(tasks) for pair in combinations(range(len(task.answers)), 2)
        ]
        pairs = [_pair(tasks[t], *pair) for t, pair in places]
        shares: list[list[list[float | None]]] = [[[] for _ in task.answers] for task in tasks]
        for (t, (a, b)), outcome in zip(places, outcomes(self.judge, pairs, 0), strict=True):
            if isinstance(outcome, NoVerdict):
                self.reasons[outcome.reason] += 1
            share = first_probability(outcome) if isinstance(outcome, Verdict) else None
            shares[t][a].append(share)
            shares[t][b].append(None if share is None else 1 - share)
        self.reasons.update(SINGLE_ANSWER for task in tasks if len(task.answers) == 1)
        return tuple(tuple(mean_if_complete(own) for own in row) for row in shares)


def _pair(task: Task, a: int, b: int) -> Task:
    return Task(
        prompt=task.prompt,
        answers=(task.answers[a], task.answers[b]),
        ended=(task.ended[a], task.ended[b]),
        category=task.category,
        reference_answer=task.reference_answer,
        metadata=task.metadata,
    )


@contextmanager
def self_judge(reward: str, model: Path, device: str) -> Iterator[JudgeReward]:
    """The model in a folder as a reward, asked as ``self,…`` says."""
    # In a folder of its own: replies that a killed run has kept were scored in other batches than these will
    # be, and the last bits of a score hang on that.
    with TemporaryDirectory(prefix="plaudit-judged-") as folder:
        settings = ModelJudgeSettings(
            device=device, soft=True, ask=HowToAsk(how="points"), cache=Path(folder)
        )
        yield JudgeReward(judge=judge_named(f"{LOCAL}{model}{reward.removeprefix(SELF)}", settings))


def refuse_mute_judge(reward: str, model: Path) -> None:
    """Raise where a model cannot say what it would be asked for, before any answer is drawn."""
    ask = parse_judge_word(reward).how(HowToAsk(how="points"))
    if ask.how == "points":
        words, replies = CritiqueSettings(points=ask.points), f"the points 1 to {ask.points}"
    elif ask.how == "letter":
        words, replies = PairwiseRankerSettings(first=LETTERS[0], second=LETTERS[1]), "the letters A and B"
    else:
        raise UserError(
            f"reward {reward}: a model judges its own answers by points or by letters, so how=points or "
            "how=letter"
        )
    try:
        refuse_same_replies(make_encoder(model), LanguageJudgeSpec(settings=words))
    except UserError as error:
        known = str(error).partition(";")[0]
        raise UserError(
            f"{model}: {known}, so it cannot reply with {replies} and is no judge of its own answers. Begin "
            "with a model whose tokenizer knows them and that was taught to judge (docs/loops.md), let it be "
            "asked otherwise (self,how=letter or self,how=points), or have another judge score the rounds: "
            "`plaudit train iterated --reward judge:WORD`"
        ) from error
