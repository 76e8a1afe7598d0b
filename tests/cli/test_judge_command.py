"""``plaudit judge`` from pairs to rows with soft labels, events, cards; and what it refuses."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from examples.mind_server.server import MindServer
from plaudit.cli.main import main
from plaudit.collect.progress import store_faults
from plaudit.collect.store import open_store
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Rating, answers_of, plain_text
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.minds import Mind
from plaudit.rewards.registry import resolve_reward
from tests.commands import commands

run, refused = commands("judge")


@pytest.fixture
def server():
    minds = [
        Mind(price="10/30", accuracy=0.85),
        Mind(name="shy", refusals=0.3, accuracy=0.85),
        Mind(name="mute", logprobs=False),
    ]
    with MindServer(minds) as running:
        yield running


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main(["world", "make", "comparisons", "--n", "40", "--out", "pairs.jsonl"]) == 0
    capsys.readouterr()
    return tmp_path


def by(server: MindServer, model: str = "world") -> str:
    return f"openai:{server.url}#{model}"


def comparisons(path: Path | str) -> list[Comparison]:
    return [record for record in read_records(path).records if isinstance(record, Comparison)]


def test_pairs_become_rows_with_the_chance_of_what_is_chosen(capsys, folder, server):
    text = run(capsys, "pairs.jsonl", "--by", by(server), "--out", "ai.jsonl", "--price", "10/30")
    assert "80 questions; about" in text
    assert "ai.jsonl: 40 rows by world@letter-1" in text
    assert "both orders agree on 100.0%; shown first preferred in 50.0%" in text
    assert "spent in all" in text
    rows = comparisons("ai.jsonl")
    assert {(row.annotator, row.group) for row in rows} == {("world@letter-1", "ai")}
    assert all(row.probability is not None and 0.5 <= row.probability < 1 for row in rows)
    assert {frozenset((row.chosen, row.rejected)) for row in rows} == {
        frozenset((row.chosen, row.rejected)) for row in comparisons("pairs.jsonl")
    }
    before = server.counts.requests
    run(capsys, "pairs.jsonl", "--by", by(server), "--out", "again.jsonl")
    assert server.counts.requests == before
    assert Path("again.jsonl").read_bytes() == Path("ai.jsonl").read_bytes()


STORED = ("--out", "ai.jsonl", "--store", "labels.db", "--price", "10/30")


@pytest.mark.slow
def test_judgements_are_events_once_for_each_judge_and_version_with_their_causes(capsys, folder, server):
    words = ("pairs.jsonl", "--by", by(server, "shy"), *STORED)
    text = run(capsys, *words)
    assert "labels.db: 40 judgements by shy@letter-1 in ai" in text
    rows = comparisons("ai.jsonl")
    assert 20 < len(rows) < 40
    assert f"no verdict on {40 - len(rows)}: {40 - len(rows)} refused" in text
    assert "0 judgements by shy@letter-1 in ai, 40 were there already" in run(capsys, *words)
    with closing(open_store("labels.db")) as store:
        assert store.read(store_faults) == []
        bodies = [event.body for event in store.events() if event.kind == "judged"]
    assert len(bodies) == 40
    [first, *_] = [body for body in bodies if body and body["reason"] is None]
    assert (first["wording"], first["sampling"]["how"], len(first["orders"])) == ("letter-1", "letter", 2)
    assert first["text"]
    assert first["tokens"] > 100
    assert first["price"] > 0


def test_an_estimate_asks_nothing_and_a_cap_stops_with_what_to_do(capsys, folder, server):
    text = run(capsys, "pairs.jsonl", "--by", by(server), "--estimate", "--price", "10/30")
    assert "80 questions" in text
    assert server.counts.requests == 0
    money = ("--price", "10/30", "--most-money", "0.05")
    text = refused(capsys, "pairs.jsonl", "--by", by(server), "--out", "ai.jsonl", *money)
    assert "the cap of 0.05 is reached" in text
    assert server.counts.price <= 0.05
    assert not Path("ai.jsonl").exists()
    money = ("--price", "10/30", "--most-money", "1")
    run(capsys, "pairs.jsonl", "--by", by(server), "--out", "ai.jsonl", *money)
    assert server.counts.to_json()["replied_twice"] == 0


@pytest.mark.slow
def test_answers_of_a_model_are_judged_and_answers_alone_get_points(capsys, folder, server):
    main(["world", "make", "prompts", "--n", "12", "--out", "prompts.jsonl"])
    main(["world", "make", "demonstrations", "--n", "12", "--out", "demos.jsonl"])
    capsys.readouterr()
    model = ("--model", base_model_folder(), "--device", "cpu", "--max-tokens", "16")
    text = run(capsys, "prompts.jsonl", "--by", by(server), "--out", "drawn.jsonl", *model)
    assert "rows by world@letter-1" in text
    assert comparisons("drawn.jsonl")
    # The second answer is, in turn, what the row holds, and another of the model's own.
    against = ("--out", "both.jsonl", "--against", "written", "policy")
    run(capsys, "demos.jsonl", "--by", by(server), *model, *against)
    demos = {plain_text(row.prompt): answers_of(row)[0] for row in read_records("demos.jsonl").records}
    held = [demos[plain_text(row.prompt)] in answers_of(row) for row in comparisons("both.jsonl")]
    assert 3 < sum(held) <= 6 <= len(held)
    # A judge that is the judged model is told.
    judge = f"model:{base_model_folder()},how=points"
    own = run(capsys, "prompts.jsonl", "--by", judge, "--out", "own.jsonl", *model)
    assert "a judge may prefer its own kind" in own
    rubric = Path("rubric.yaml")
    rubric.write_text("- {name: truth, description: it says what is so.}\n")
    run(capsys, "demos.jsonl", "--by", by(server), "--out", "points.jsonl", "--rubric", rubric)
    ratings = [record for record in read_records("points.jsonl").records if isinstance(record, Rating)]
    assert len(ratings) == 12
    assert all(1 <= rating.score <= 5 for rating in ratings)
    assert str(ratings[0].annotator).startswith("world@points-1-")


@pytest.mark.slow
def test_a_card_says_what_a_judge_is_worth_and_scales_its_chances(capsys, folder, server):
    main(["world", "make", "comparisons", "--n", "200", "--annotators", "experts", "--out", "people.jsonl"])
    capsys.readouterr()
    card = ("--card", "people.jsonl", "--bootstrap", "50")
    text = run(capsys, "--by", by(server), *card, "--out", "card.json")
    for figure in (
        *("agrees with people", "κ", "both orders agree", "calibration error, scaled", "temperature"),
    ):
        assert figure in text
    assert "card.json: the card of world letter-1" in text
    temperature = json.loads(Path("card.json").read_text("utf-8"))["temperature"]
    text = run(capsys, "pairs.jsonl", "--by", by(server), "--out", "scaled.jsonl", "--calibrate", "card.json")
    assert f"world@letter-1+T{temperature:.3g}" in text
    another = ("--how", "verdict", "--calibrate", "card.json")
    text = refused(capsys, "pairs.jsonl", "--by", by(server), "--out", "x.jsonl", *another)
    assert "this card is of world letter-1, and the judge is world verdict-1" in text
    run(capsys, "pairs.jsonl", "--by", by(server), "--out", "ai.jsonl")
    assert "rows of models (group ai)" in refused(capsys, "--by", by(server), "--card", "ai.jsonl")


def test_a_server_without_log_probs_is_told_of(capsys, folder, server):
    text = run(
        capsys, "pairs.jsonl", "--by", f"{by(server, 'mute')},draws=2", "--n", "5", "--out", "ai.jsonl"
    )
    assert "mute gives no log-probs: the share of 2 draws stands for the chance" in text
    assert len(comparisons("ai.jsonl")) == 5


def test_what_cannot_be_judged_is_refused_before_anything_is_asked(capsys, folder, server):
    main(["world", "make", "prompts", "--n", "5", "--out", "prompts.jsonl"])
    capsys.readouterr()
    out = ("--out", "x.jsonl")
    for message, words in (
        ("give ROWS to be judged, or --card", ("--by", by(server), *out)),
        ("give ROWS to be judged, or --card", ("pairs.jsonl", "--card", "pairs.jsonl", "--by", by(server))),
        ("--out FILE", ("pairs.jsonl", "--by", by(server))),
        ("--card only measures", ("--card", "pairs.jsonl", "--by", by(server), "--store", "labels.db")),
        ("name a model; people answer", ("pairs.jsonl", "--by", "people", *out)),
        ("prompts alone: name with --model", ("prompts.jsonl", "--by", by(server), *out)),
        ("its prices are not known", ("pairs.jsonl", "--by", by(server), *out, "--most-money", "5")),
        ("as in 0.15/0.6", ("pairs.jsonl", "--by", by(server), *out, "--price", "cheap")),
        (
            "nothing is called hwo; did you mean how",
            ("pairs.jsonl", "--by", f"{by(server)},hwo=letter", *out),
        ),
        ("name the model behind a #", ("pairs.jsonl", "--by", f"openai:{server.url}", *out)),
        ("there is no model", ("pairs.jsonl", "--by", by(server, "gpt"), *out)),
        ("no such file", ("none.jsonl", "--by", by(server), *out)),
        ("cannot be read as a list of judges", ("pairs.jsonl", "--by", "jury:none.yaml", *out)),
        ("holds no token", ("pairs.jsonl", "--by", by(server), *out, "--token-from", "NO_SUCH_VARIABLE")),
    ):
        assert message in refused(capsys, *words), message
    assert server.counts.requests == 0


@pytest.mark.slow
def test_a_rule_and_a_jury_judge_as_models_do(capsys, folder, server):
    text = run(capsys, "pairs.jsonl", "--by", "length:1-8", "--out", "rule.jsonl")
    assert "rows by length:1-8" in text
    Path("jury.yaml").write_text(f"- {{judge: '{by(server)}', accuracy: 0.85}}\n- {by(server, 'shy')}\n")
    text = run(capsys, "pairs.jsonl", "--by", "jury:jury.yaml", "--out", "jury.jsonl")
    assert "rows by jury@" in text
    main(["world", "make", "comparisons", "--n", "80", "--out", "people.jsonl"])
    assert "errors of 1 world, 2 shy" in run(
        capsys, "--by", "jury:jury.yaml", "--card", "people.jsonl", "--bootstrap", "20"
    )


def test_an_estimate_of_a_card_and_a_card_without_a_temperature_ask_nothing(capsys, folder, server):
    text = run(capsys, "--by", by(server), "--card", "pairs.jsonl", "--estimate", "--price", "10/30")
    assert "questions; about" in text
    assert server.counts.requests == 0
    card = ("--card", "pairs.jsonl", "--n", "20", "--bootstrap", "10")
    run(capsys, "--by", by(server), *card, "--out", "card.json")
    before = server.counts.requests
    words = ("pairs.jsonl", "--by", by(server), "--calibrate", "card.json", "--out", "x.jsonl")
    assert "this card has no temperature" in refused(capsys, *words)
    assert server.counts.requests == before


@pytest.mark.one_in(2)
@pytest.mark.parametrize("word", ["jury", "spread"])
def test_judgements_of_several_have_their_members_cost(capsys, folder, server, word):
    Path("several.yaml").write_text(f"- '{by(server)}'\n- '{by(server, 'shy')}'\n")
    text = run(capsys, "pairs.jsonl", "--by", f"{word}:several.yaml", *STORED)
    questions = {"jury": 160, "spread": 80}[word]
    assert f"several: {questions} questions" in text
    assert server.counts.requests == questions
    with closing(open_store("labels.db")) as store:
        bodies = [event.body for event in store.events() if event.kind == "judged"]
    assert sum(body["tokens"] for body in bodies if body) == sum(server.counts.tokens.values())


def test_a_constitution_judges_and_which_principle_decided_is_kept_in_the_store(capsys, folder, server):
    text = run(
        capsys,
        *("pairs.jsonl", "--by", by(server), "--constitution", "ours", "--principles", "2", "--n", "12"),
        *("--out", "ai.jsonl", "--store", "labels.db", "--price", "10/30"),
    )
    ours = constitution_named("ours")
    version = f"letter-1-c{ours.version}x2"
    # Of two principles for each pair, each in both orders.
    assert "48 questions" in text
    assert f"12 judgements by world@{version} in ai" in text
    with closing(open_store("labels.db")) as store:
        bodies = [event.body for event in store.events() if event.kind == "judged" and event.body]
    assert len(bodies) == 12
    assert all(len(body["principles"]) == 2 for body in bodies)
    assert {body["sampling"]["constitution"] for body in bodies} == {ours.version}
    assert {row.annotator for row in comparisons("ai.jsonl")} == {f"world@{version}"}
    before = server.counts.requests
    word = f"{by(server)},constitution=ours,principles=2"
    run(capsys, "pairs.jsonl", "--by", word, "--n", "12", "--out", "same.jsonl")
    assert server.counts.requests == before
    stored, written = (
        {(row.prompt, row.chosen, row.rejected, round(row.probability or 0, 6)) for row in comparisons(path)}
        for path in ("ai.jsonl", "same.jsonl")
    )
    assert stored == written


def test_points_by_a_constitution_and_a_reward_of_it_ask_by_the_same_principle(capsys, folder, server):
    assert main(["world", "make", "demonstrations", "--n", "10", "--out", "demos.jsonl"]) == 0
    word = f"{by(server)},constitution=ours,how=points"
    run(capsys, "demos.jsonl", "--by", word, "--out", "points.jsonl")
    rated = [row for row in read_records("points.jsonl").records if isinstance(row, Rating)]
    assert len(rated) == 10
    reward = resolve_reward(f"judge:{word}")
    before = server.counts.requests
    tasks = [Task(prompt=row.prompt, answers=(row.completion,), ended=(True,)) for row in rated]
    assert [score for [score] in reward.scores(tasks)] == pytest.approx([row.score for row in rated])
    assert server.counts.requests == before


def test_a_judges_reasons_stay_with_its_points_and_a_critic_learns_from_them(capsys, folder, server):
    assert main(["world", "make", "demonstrations", "--n", "24", "--out", "demos.jsonl"]) == 0
    text = run(capsys, "demos.jsonl", "--by", by(server), "--how", "grade", "--out", "graded.jsonl")
    assert "24 rows by world@grade-1" in text
    rated = [row for row in read_records("graded.jsonl").records if isinstance(row, Rating)]
    assert all(row.reason and "verdict" not in row.reason and row.score in range(1, 6) for row in rated)
    words = ["--model", base_model_folder(), "--data", "graded.jsonl", "--out", "critic", "--steps", 1]
    assert main(["train", "critic", *map(str, words), "--held-out", "0", "--sample.rows", "0"]) == 0
    assert "left out" not in capsys.readouterr().err


def test_pairs_far_down_the_file_are_compared_and_single_answers_not_rated(capsys, folder, server):
    assert main(["world", "make", "demonstrations", "--n", "60", "--out", "demos.jsonl"]) == 0
    lines = Path("demos.jsonl").read_text().splitlines() + Path("pairs.jsonl").read_text().splitlines()[:3]
    Path("mixed.jsonl").write_text("\n".join(lines) + "\n")
    run(capsys, "mixed.jsonl", "--by", by(server), "--how", "points", "--out", "ai.jsonl")
    assert len(comparisons("ai.jsonl")) == len(read_records("ai.jsonl").records) == 3


def test_what_is_wrong_with_a_constitution_is_told_before_anything_is_asked(capsys, folder, server):
    asked = ("pairs.jsonl", "--by", by(server), "--out", "ai.jsonl")
    Path("own.yaml").write_text("- {id: calm, choose: a, critique: b}")
    Path("narrow.yaml").write_text("- {id: calm, choose: a, critique: b, revise: c, categories: [poems]}")
    for words, message in (
        (("--constitution", "own.yaml"), "own.yaml, principle 1 (calm): revise is missing"),
        (("--constitution", "ours", "--principles", "0"), "principles=0: ours has 16; give 1 to 16, or all"),
        (("--principles", "3"), "principles=3 are of a constitution"),
        (("--constitution", "narrow.yaml"), "narrow.yaml: no principle fits the category '"),
        (("--constitution", "ours", "--how", "answer"), "how=answer compares with the true answer"),
        (("--preamble", "none.txt"), "none.txt: cannot be read as a text"),
    ):
        assert message in refused(capsys, *asked, *words)
    assert server.counts.requests == 0
