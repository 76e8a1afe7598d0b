"""Wordings that the world's tokenizer knows: after a line break it knows words with a blank in front only."""

from __future__ import annotations

from plaudit.records.worded_settings import CriticSettings, QuoteSettings, RankerSettings, TextRewardSettings

QUOTE = QuoteSettings(mark="- ", user=" You", assistant=" I", answer=" Answer", critique=" Question")
TEXT_REWARD = TextRewardSettings(good="Yes", bad="No", ask=" Tell me, is the answer good?")
RANKER = RankerSettings(first="1", second="2", ask=" Which answer is better?", order="both")
CRITIC = CriticSettings(
    ask=" What is wrong with the answer?", ask_points=" How good is the answer?", tokens=40, critiques=2
)
