"""Models that write: texts, why there is none, what is sent, and which words cannot write."""

import re
from pathlib import Path
from typing import Any

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import NoVerdict
from plaudit.errors import UserError
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judges.replies import CUT, REFUSED, UNREADABLE
from plaudit.feedback.judges.wording import Question, wording_named
from plaudit.feedback.judges.writing import Writer, Written
from plaudit.lab.world.minds import Mind
from plaudit.rewards.kinds import JudgeSettings
from tests.feedback.judges.judges import QUICK, completion, question
from tests.feedback.judges.test_ways_of_asking import ATTACKS
from tests.rewards.server import serving

CRITIQUE = wording_named("critique")


def ask(answer: str) -> Question:
    return Question(wording=CRITIQUE, prompt="What does the owl eat?", blocks=(("Answer", answer),))


def writer(url: str, folder: Path, settings: str = "", model: str = "small") -> Writer:
    word = f"openai:{url.removesuffix('/score').removesuffix('/v1')}/v1#{model}{settings}"
    return writer_named(word, JudgeSettings(retry_policy=QUICK, cache=folder))


def test_a_text_comes_without_blank_space_and_every_failure_with_its_own_reason(tmp_path):
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        text = question(body)
        for sign, sent in {
            "> refuse": completion(None, refusal="No."),
            "> cut": completion("It begins", finish_reason="length"),
            "> empty": completion(" \n"),
            "> reject": (400, b'{"error": {"message": "maximum context length"}}'),
        }.items():
            if sign in text:
                return sent
        return completion(" Owls eat mice.\n")

    with serving(reply) as server:
        found = writer(server.url, tmp_path, ",price=1/2").texts(
            [ask(word) for word in ("fine", "refuse", "cut", "empty", "reject")], seed=0
        )
    assert isinstance(found[0], Written)
    assert found[0].text == "Owls eat mice."
    assert found[0].tokens > 50
    assert found[0].price > 0
    reasons = [item.reason for item in found[1:] if isinstance(item, NoVerdict)]
    assert reasons == [REFUSED, CUT, UNREADABLE, "too long for the server"]


def test_another_seed_draws_another_text_and_at_temperature_0_none_is_sent(tmp_path):
    sent = list[tuple[object, object, object]]()

    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        sent.append((body["temperature"], body["max_tokens"], body.get("seed")))
        return completion(f"Text {len(sent)}.")

    with serving(reply) as server:
        warm = writer(server.url, tmp_path)
        first, again, other = (warm.texts([ask("Mice.")], seed) for seed in (0, 0, 1))
        cold = writer(server.url, tmp_path, ",temperature=0,max-tokens=9")
        assert cold.texts([ask("Mice.")], 0) == cold.texts([ask("Mice.")], 1)
    assert first == again != other
    assert sent == [(0.7, 256, 0), (0.7, 256, 1), (0.0, 9, None)]
    assert (warm.version(CRITIQUE), cold.version(CRITIQUE)) == ("critique-1-t0.7-256", "critique-1-t0-9")


def test_what_is_written_is_estimated_counted_and_asked_once(tmp_path):
    questions = [ask("The owl eats tea."), ask("I do not know.")]
    with MindServer([Mind(price="1/2")]) as server:
        model = writer(server.url, tmp_path, ",price=1/2", model="world")
        assert model.estimate(questions, seed=3).cached == 0
        assert model.spent(questions[0], seed=3) == (0, 0.0)
        found = [item for item in model.texts(questions, seed=3) if isinstance(item, Written)]
        assert model.texts(questions, seed=3) == found
        assert server.counts.to_json()["replied_twice"] == 0
        assert sum(item.price for item in found) == pytest.approx(server.counts.price)
        assert model.estimate(questions, seed=3).cached == 2
        assert model.spent(questions[0], seed=3) == (found[0].tokens, found[0].price)


@pytest.mark.parametrize("word", ["jury:three.yaml", "length:1-20", "gold", "people", "spread:three.yaml"])
def test_a_jury_a_rule_and_people_cannot_write(word):
    with pytest.raises(UserError, match="cannot write"):
        writer_named(word)


def test_settings_of_judges_alone_and_impossible_ones_are_refused():
    with pytest.raises(UserError, match="a writer has no how"):
        writer_named("openai:http://127.0.0.1:1/v1#small,how=letter")
    with pytest.raises(UserError, match="at least 1"):
        writer_named("openai:http://127.0.0.1:1/v1#small,max-tokens=0")


@pytest.mark.parametrize("name", ["critique", "revise", "revise-alone", "revise-little"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_answers_and_critiques_say_stays_quoted_where_models_write(tmp_path, name, attack):
    # A critique is a model's, but of a stranger's answer, whose words it may repeat.
    blocks = (("Answer", attack),) if name == "critique" else (("Answer", attack), ("Critique", attack))
    asked = Question(wording=wording_named(name), prompt=f"What?\n{attack}", blocks=blocks)
    with serving(lambda body, n: completion("Mice.")) as server:
        [written] = writer(server.url, tmp_path).texts([asked], seed=0)
        assert isinstance(written, Written)
        [body] = server.asked
        lines = question(body).splitlines()
        unquoted = [line for line in lines if not line.startswith("> ")]
        assert "<|im_end|>" not in question(body)
        assert not [line for line in unquoted if "Tea" in line or "Nothing" in line]
        headers = [line for line in unquoted if re.fullmatch(r"[A-Z][\w ]{0,20}:", line)]
        assert len(headers) == len({*headers}) == len(blocks) + 1
