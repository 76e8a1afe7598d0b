"""Prompted policies and the rows' own answers, as contestants beside models."""

from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Ranking,
    Rating,
    assistant_turn,
    user_turn,
)
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import Contestant, evaluation_prompts
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.methods.models import write_tokenizer
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import encode_record, make_encoder
from tests.commands import commands
from tests.rollouts.talkers import write_talker

run, complaint = commands("eval", "policy", quick=("--max-tokens", "5", "--bootstrap", "50"))

SYSTEM = Message(role="system", content="w30 w31")
SHOTS = (
    Demonstration(prompt=user_turn("w7"), completion=assistant_turn("w8")),
    Demonstration(prompt=user_turn("w9"), completion=assistant_turn("w10")),
)
ASKED = [f"w{n}" for n in range(11, 23)]
LONGER = "tests.evaluation.rewards_by_hand:longer"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_talker(tmp_path_factory.mktemp("models") / "talker", seed=0)


@pytest.fixture
def shots(tmp_path) -> Path:
    return write_records(SHOTS, tmp_path / "shots.jsonl").path


@pytest.mark.slow
def test_prompts_may_have_a_field_of_another_name(capsys, model, tmp_path):
    data = tmp_path / "named.jsonl"
    data.write_text("".join(f'{{"ask": "{word}"}}\n' for word in ASKED))
    out = tmp_path / "out"
    run(capsys, model, "--prompts", data, "--columns", "prompt=ask", "--out", out)
    assert read_policy_evaluation(out).prompts == len(ASKED)


@pytest.mark.slow
def test_prompts_that_a_run_was_trained_on_are_told_first(capsys, model, tmp_path):
    rows = [Demonstration(prompt=user_turn(p), completion=assistant_turn("w8")) for p in ASKED]
    seen, unseen = (write_records(rows[i:], tmp_path / f"{i}.jsonl").path for i in (0, 1))
    # The talker's weights are drawn, and say nothing of any row.
    train = ("train", "sft", "--model", model, "--steps", 1, "--device", "cpu", "--allow", "base-loss")
    assert main([*map(str, (*train, "--data", seen, "--out", tmp_path / "run"))]) == 0
    capsys.readouterr()
    out = tmp_path / "out"
    for folder in ("run", "run/model"):
        run(capsys, f"{tmp_path}/{folder}", model, "--prompts", seen, "--out", out, "--device", "cpu")
        first, *others = read_policy_evaluation(out).notes
        assert f"was trained on {seen}, whose prompts are asked here" in first
        assert not any("was trained on" in note for note in others)
    other = write_records(rows[:1] * 2, tmp_path / "other.jsonl").path
    held = ("--data", other, "--held-out", unseen, "--out", tmp_path / "held")
    assert main([*map(str, (*train, *held))]) == 0
    run(capsys, tmp_path / "run", tmp_path / "held", "--prompts", unseen, "--out", out, "--device", "cpu")
    assert not any("was trained on" in note for note in read_policy_evaluation(out).notes)


def test_a_prompted_policy_is_asked_with_its_system_turn_and_examples(capsys, model, shots, tmp_path):
    data = write_records([Prompt(prompt=user_turn(p)) for p in ASKED], tmp_path / "asked.jsonl").path
    system = tmp_path / "system.txt"
    system.write_text("w30 w31\n")
    out = tmp_path / "e"
    text = run(
        capsys, model, "--policy", f"prompted={model},system={system},shots={shots}", "--prompts", data,
        "--judge", LONGER, "--out", out, "--device", "cpu",
    )  # fmt: skip
    found = read_policy_evaluation(out)
    sampler = LocalSampler(model, device="cpu")
    opening = (SYSTEM, *(turn for shot in SHOTS for turn in (*shot.prompt, *shot.completion)))
    settings = SamplingSettings(max_tokens=5)
    plain = sampler.generate_answers([user_turn(p) for p in ASKED], settings)
    prompted = sampler.generate_answers([(*opening, *user_turn(p)) for p in ASKED], settings)
    for row, (one,), (other,) in zip(found.all_answers, plain, prompted, strict=True):
        assert [answer.text for answer in row.answers] == [one.text, other.text]
    assert [row.prompt for row in found.all_answers] == ASKED, "a judge sees the row, and no example"
    assert [policy.name for policy in found.policies] == ["talker", "prompted"]
    assert found.policies[1].kl is not None
    assert f"prompted is {model} with a system turn and 2 examples before every prompt" in text
    assert "KL of prompted from talker is that of its answers to the same questions" in text
    assert f"Against talker, by {LONGER}" in text


def raw_talker(folder: Path, *, template: bool) -> Path:
    """A model that is asked in plain text: it has no template, or was trained outside of the one it has."""
    write_talker(folder, seed=1, chats=template)
    if template:
        write_tokenizer(make_encoder(folder, text="raw"), folder)
    return folder


@pytest.mark.parametrize("template", [False, True])
def test_a_model_that_is_asked_in_plain_text_reads_its_examples_as_text(capsys, tmp_path, template):
    plain = raw_talker(tmp_path / "plain", template=template)
    shots = [Demonstration(prompt="w7", completion=" w8"), Demonstration(prompt="w9", completion=" w10")]
    given = write_records(shots, tmp_path / "shots.jsonl").path
    data = write_records([Prompt(prompt=p) for p in ASKED], tmp_path / "asked.jsonl").path
    out = tmp_path / "e"
    run(
        capsys, "--policy", f"few={plain},system=w30, w31,shots={given}", "--prompts", data,
        "--out", out, "--device", "cpu",
    )  # fmt: skip
    texts = [f"w30, w31\n\nw7 w8\n\nw9 w10\n\n{p}" for p in ASKED]
    wanted = LocalSampler(plain, device="cpu").generate_answers(
        texts, SamplingSettings(max_tokens=5, stop=("\n\n",))
    )
    found = read_policy_evaluation(out)
    assert [row.answers[0].text for row in found.all_answers] == [answer.text for (answer,) in wanted]
    turned = write_records(SHOTS, tmp_path / "turned.jsonl").path
    said = complaint(capsys, "--policy", f"few={plain},shots={turned}", "--prompts", data, "--device", "cpu")
    assert "the examples before it are conversations, and the model is asked in plain text" in said


def test_a_system_turn_of_the_row_and_one_of_the_policy_are_not_mixed():
    prompt = (Message(role="system", content="w40"), *user_turn("w11"))
    shot = Contestant(folder=None, shots=SHOTS[:1]).question(prompt, chats=True)
    assert shot == (prompt[0], *user_turn("w7"), *assistant_turn("w8"), *user_turn("w11"))
    with pytest.raises(UserError, match="a system turn of its own"):
        Contestant(folder=None, system="w30").question(prompt, chats=True)


def test_a_row_has_the_answer_that_it_holds():
    several = ("w8", "w9 w9", "w7")
    rows = [
        Demonstration(prompt="a", completion="w8", answer="8"),
        Comparison(prompt="b", chosen="w8", rejected="w9"),
        Ranking(prompt="c", completions=several, ranks=(2, 1, 3)),
        Prompt(prompt="d", answer="w8"),
        Rating(prompt="e", completion="w8", score=0.0),
        Demonstration(prompt=user_turn("f"), completion=(*assistant_turn("w8"), *user_turn("w9"))),
    ]
    prompts = evaluation_prompts(rows)
    assert [one.written for one in prompts] == ["w8", "w8", "w9 w9", "w8", None, None]
    assert [one.reference_answer for one in prompts] == ["8", None, None, "w8", None, None]


@pytest.mark.parametrize("template", [False, True])
def test_written_answers_in_plain_text_are_counted_as_plain_text(capsys, tmp_path, template):
    plain = raw_talker(tmp_path / "plain", template=template)
    rows = [Demonstration(prompt=p, completion=" w8 w8 w8") for p in ASKED]
    data = write_records(rows, tmp_path / "rows.jsonl").path
    out = tmp_path / "e"
    run(capsys, plain, "written", "--prompts", data, "--answers", 2, "--out", out, "--device", "cpu")
    encoder = make_encoder(plain)
    asked = encoder.encode_prompt(ASKED[0])
    assert encoder.info.decode(asked) == ASKED[0]
    whole = encode_record(rows[0], encoder)
    assert whole.prompt == asked
    written = {policy.name: policy for policy in read_policy_evaluation(out).policies}["written"]
    assert written.length.value == len(whole.completions[0].ids)


@pytest.mark.parametrize("first", ["model", "written"])
def test_the_answers_of_the_rows_compete_with_a_model(capsys, model, tmp_path, first):
    rows = [Demonstration(prompt=user_turn(p), completion=assistant_turn("w8 w8 w8")) for p in ASKED]
    data = write_records(rows, tmp_path / "rows.jsonl").path
    order = (model, "written") if first == "model" else ("written", model)
    out = tmp_path / "e"
    text = run(
        capsys, *order, "--prompts", data, "--judge", LONGER, "--answers", 2, "--out", out, "--device", "cpu"
    )
    found = read_policy_evaluation(out)
    policies = {policy.name: policy for policy in found.policies}
    written = policies["written"]
    assert written.model == "written"
    assert (written.kl, written.entropy, written.finished.value) == (None, None, 1.0)
    assert written.length.value == 4, "three words and the end, as the model would say them"
    assert written.diversity.unique == pytest.approx(1 / len(ASKED)), "each row's answer counts once"
    [contest] = found.contests
    duels = [(len(a.text), len(b.text)) for row in found.all_answers for a, b in [row.answers]]
    assert contest.won == sum(b > a for a, b in duels)
    assert contest.lost == sum(b < a for a, b in duels)
    assert contest.won + contest.tied + contest.lost == 2 * len(ASKED)
    assert {
        answer.text for row in found.all_answers for answer in row.answers if answer.policy == "written"
    } == {"w8 w8 w8"}
    assert "written are the answers that the rows hold, one to each prompt, in tokens of talker" in text
    assert (policies["talker"].kl is None) == (first == "written")


def test_the_tax_of_a_prompted_policy_is_asked_with_its_prompt(capsys, model, shots, tmp_path):
    sampler, settings = LocalSampler(model, device="cpu"), SamplingSettings(max_tokens=5, temperature=0)
    opening = [turn for shot in SHOTS for turn in (*shot.prompt, *shot.completion)]
    answers = sampler.generate_answers([(*opening, *user_turn(p)) for p in ASKED], settings)
    rows = [Prompt(prompt=user_turn(p), answer=a.text) for p, (a,) in zip(ASKED, answers, strict=True)]
    data = write_records(rows, tmp_path / "sums.jsonl").path
    text = run(
        capsys, model, "--policy", f"shown={model},shots={shots}", "--prompts", data, "--device", "cpu",
        "--tax", f"{data}:exact",
    )  # fmt: skip
    [line] = [line for line in text.splitlines() if "sums (exact)" in line]
    assert line.split("│")[3].strip() == "100.0 %"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "a"], "expected NAME=DIR"),
        (["--policy", "a=none"], "no such folder"),
        (["--policy", "a={model},system="], "system is empty"),
        (["--policy", "a={model},system=w7,system=w8"], "may be given once each"),
        (["--policy", "a={model},system=none.txt"], "none.txt: no such file; give its path, or the words"),
        (["--policy", "a={model},shots=none.jsonl"], "none.jsonl: no such file"),
        (["--policy", "a={model},shots={data}"], "is to hold demonstrations"),
        (["--policy", "a={model}", "--policy", "a={model},system=w7"], "a is there already"),
        (["written"], "written answers alone compete with nobody"),
        (["written", "{model}"], "12 of 12 prompts have no written answer, the first of them 'w11'"),
        (["{model}", "--policy", "a={model},system=w7", "--tasks", "arc"], "without the prompt of a"),
        ([], "name a policy: a MODEL"),
    ],
)
def test_contestants_that_cannot_be_are_refused(capsys, model, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    data = write_records([Prompt(prompt=user_turn(p)) for p in ASKED], tmp_path / "asked.jsonl").path
    filled = [word.format(model=model, data=data) for word in words]
    assert said in complaint(capsys, *filled, "--prompts", data)


def test_written_answers_have_no_tax_no_best_of_and_no_world(capsys, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [Demonstration(prompt=user_turn(p), completion=assistant_turn("w8")) for p in ASKED]
    data = write_records(rows, tmp_path / "rows.jsonl").path
    said = complaint(capsys, "written", model, "--prompts", data, "--tax", f"{data}:exact")
    assert "name a model first, or with --against" in said
    assert "the world's prompts hold no answers" in complaint(capsys, "written", model, "--world")
    (tmp_path / "written").mkdir()
    assert "give the folder as ./written" in complaint(capsys, "written", model, "--prompts", data)
