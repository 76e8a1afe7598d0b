"""Judges on a real server of this machine: one that keeps to the rules, and what tests ask it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit.data.judging import Judge, NoVerdict, Orders, Task, first_probability, outcomes
from plaudit.data.records import assistant_turn, user_turn
from plaudit.feedback.judges.cache import ReplyCache
from plaudit.feedback.judges.chat import ChatServer
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import Prices, Purse
from plaudit.files.posting import RetryPolicy

QUICK = RetryPolicy(seconds=5, pause=0.01, attempts=2)


def pair(first: str, second: str, prompt: str = "What does the owl eat?") -> Task:
    return Task(
        prompt=user_turn(prompt), answers=(assistant_turn(first), assistant_turn(second)), ended=(True, True)
    )


def question(body: dict[str, Any]) -> str:
    [message] = body["messages"]
    return message["content"]


def quoted(text: str) -> tuple[str, str]:
    """The two answers as a model that keeps to the rules reads them: marked lines under our headers."""
    blocks: dict[str, list[str]] = {}
    header = ""
    for line in text.splitlines():
        if line.startswith("> "):
            blocks.setdefault(header, []).append(line[2:])
        else:
            header = line
    return "\n".join(blocks["Answer A:"]), "\n".join(blocks["Answer B:"])


def delimiters(text: str) -> tuple[str, str]:
    """Those that are asked for, found in the one line that is not quoted."""
    [found] = re.findall(r"^(<verdict-[0-9a-f]+>)WORD(</verdict-[0-9a-f]+>)$", text, re.MULTILINE)
    return found


def completion(text: str | None, **more: object) -> tuple[int, bytes]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"} | {
        key: value for key, value in more.items() if key != "refusal"
    }
    if "refusal" in more:
        message["refusal"] = str(more["refusal"])
    return 200, json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


def honest(body: dict[str, Any], _: int) -> tuple[int, bytes]:
    """Likes mice in the first line, and repeats both answers before it says so, as models do."""
    text = question(body)
    first, second = quoted(text)
    opened, closed = delimiters(text)
    good = ["mice" in one.splitlines()[0].lower() for one in (first, second)]
    word = "tie" if good[0] == good[1] else "A" if good[0] else "B"
    return completion(f"A says: {first}\nB says: {second}\nSo:\n{opened}{word}{closed}")


def judge(
    url: str,
    folder: Path,
    *,
    manners: RetryPolicy = QUICK,
    model: str = "judge",
    prices: Prices | None = None,
    purse: Purse | None = None,
    **ask: Any,
) -> ModelJudge:
    server = ChatServer(
        url=url.removesuffix("/score").removesuffix("/v1") + "/v1",
        model=model,
        cache=ReplyCache(folder=folder),
        retry_policy=manners,
        prices=prices,
        purse=purse or Purse(),
    )
    return ModelJudge(asker=server, ask=HowToAsk(**ask))


@dataclass(frozen=True)
class InOrders:
    """What a judge says of a pair in either order."""

    forward: float | None
    backward: float | None
    reason: str | None = None


def both_orders(judge: Judge, tasks: Sequence[Task]) -> list[InOrders]:
    found = [
        (outcome, outcome.reason if isinstance(outcome, NoVerdict) else None)
        for outcome in outcomes(judge, tasks, 0)
    ]
    shown = [
        outcome.orders or (Orders(forward=None, backward=None) if reason else Orders(forward=p, backward=p))
        for outcome, reason in found
        for p in [None if isinstance(outcome, NoVerdict) else first_probability(outcome)]
    ]
    return [
        InOrders(forward=orders.forward, backward=orders.backward, reason=reason)
        for orders, (_, reason) in zip(shown, found, strict=True)
    ]
