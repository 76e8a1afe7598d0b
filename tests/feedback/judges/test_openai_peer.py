"""The official OpenAI client speaks to ``examples.mind_server`` as to any other server."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plaudit.data.records import plain_text
from plaudit.feedback.judges.wording import ShownPair, pair_question, wording_named
from plaudit.lab.world import making
from tests.peer import ROOT, ask_script

OPENAI = Path(os.environ.get("PLAUDIT_OPENAI_PYTHON", ROOT / ".peers/openai/bin/python"))
MINDS = ("world", "shy,refusals=1", "faulty,faults=0.6")


@contextmanager
def world_server(*minds: str) -> Iterator[str]:
    """The command as users start it, and its address."""
    named = [word for mind in minds for word in ("--mind", mind)]
    words = [sys.executable, "-m", "examples.mind_server", "--port", "0", *named]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("openai:"))
            yield line.strip().removeprefix("openai:").partition("#")[0]
        finally:
            process.terminate()


@pytest.mark.peer(OPENAI)
def test_the_official_client_reads_models_log_probs_refusals_errors_and_limits() -> None:
    [task] = making.answer_tasks(1, answers=2, split="train", seed=4)
    first, second = map(plain_text, task.answers)
    pair = ShownPair(prompt=task.prompt, first=first, second=second)
    asked = {
        "question": pair_question(wording_named("letter"), pair).text(),
        "verdict": pair_question(wording_named("verdict"), pair).text("7f"),
    }
    with world_server(*MINDS) as url:
        found = ask_script("judges/peer_openai.py", asked | {"url": url}, OPENAI)
    assert found["models"] == ["world", "shy", "faulty"]
    letter = found["letter"]
    assert letter["text"] in ("A", "B")
    assert letter["finish"] == "stop"
    assert {"A", "B"} <= {*letter["top"]}
    assert sum(map(math.exp, letter["top"].values())) == pytest.approx(1.0)
    assert math.exp(letter["top"][letter["text"]]) >= 0.49
    assert letter["usage"][0] > 50
    assert letter["usage"][1] == 1
    assert found["refusal"]["refusal"] == "I would rather not judge this."
    assert found["cut"]["finish"] == "length"
    assert found["cut"]["usage"][1] == 3
    assert found["unknown"][0] == "NotFoundError"
    assert "there is no model 'nobody'" in found["unknown"][1]
    assert found["stream"][0] == "BadRequestError"
    assert "this server sends whole replies" in found["stream"][1]
    assert {"RateLimitError", "InternalServerError", "APIConnectionError", "none"} <= {*found["limited"]}
    assert found["patient"]["text"] in ("A", "B")
