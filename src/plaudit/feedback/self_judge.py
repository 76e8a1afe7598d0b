"""The newest model as the judge of its own answers (Yuan et al. 2024, arXiv:2401.10020).

It is asked for points, as any other model in a folder (``judge:model:DIR``), and gives the mean over the
chances of the points, to which the mean of many draws would come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from plaudit.data.generative_judging import CritiqueSettings, LanguageJudgeSettings, PairwiseRankerSettings
from plaudit.errors import UserError
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.judge_kinds import JudgeReward
from plaudit.feedback.judges.modes import LETTERS, HowToAsk
from plaudit.feedback.judges.words import LOCAL, parse_judge_word
from plaudit.methods.iterative.config import SELF
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.llm.generative import LanguageJudgeSpec, refuse_same_replies
from plaudit.tokens.encode import make_encoder


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
    _refuse_unknown_words(words, replies, model)


def _refuse_unknown_words(words: LanguageJudgeSettings, replies: str, model: Path) -> None:
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
