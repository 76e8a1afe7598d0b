"""Wordings that the world's tokenizer knows: after a line break it knows words with a blank in front only."""

from plaudit.data.generative_judging import (
    CritiqueSettings,
    GenerativeRewardSettings,
    PairwiseRankerSettings,
    QuoteSettings,
)

QUOTE = QuoteSettings(mark="- ", user=" You", assistant=" I", answer=" Answer", critique=" Question")
TEXT_REWARD = GenerativeRewardSettings(good="Yes", bad="No", ask=" Tell me, is the answer good?")
RANKER = PairwiseRankerSettings(first="1", second="2", ask=" Which answer is better?", order="both")
CRITIC = CritiqueSettings(
    ask=" What is wrong with the answer?", ask_points=" How good is the answer?", tokens=40, critiques=2
)
