"""True critiques, revisions and comparisons of the world: their words, their truth, their prompts."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from plaudit.cli.main import main
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, plain_text
from plaudit.feedback.judges.cache import ReplyCache
from plaudit.feedback.judges.calling import FunctionChat
from plaudit.feedback.judges.constitution import read_constitution
from plaudit.feedback.judges.wording import wording_named
from plaudit.feedback.judges.writing import Writer
from plaudit.feedback.rounds import Draft, RevisionPlan, revise_drafts
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.annotators import POOLS, annotator_pool
from plaudit.lab.world.gold import gold_of, judge_answer
from plaudit.lab.world.making import is_red_team
from plaudit.lab.world.minds import Mind, read_question
from plaudit.lab.world.prompts import question_of_prompt, split_of
from plaudit.lab.world.teaching import RIGHT_SENTENCE, critique_of, critiques, helpful_only, revisions
from plaudit.rewards.comparing import judge_named
from plaudit.tokens.encode import make_encoder


def cases() -> list[tuple[str, str, str]]:
    """Prompt, answer and critique of critiques.txt: an answer is set in, under what is to be said of it."""
    rows: list[tuple[str, str, str]] = []
    prompt = critique = ""
    for line in Path(__file__).with_name("critiques.txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            rows.append((prompt, line.strip(), critique))
        elif line.startswith("It ") or line.startswith("No one"):
            critique = line
        else:
            prompt = line
    return rows


@pytest.mark.parametrize(("prompt", "answer", "critique"), cases())
def test_a_critique_says_what_is_so(prompt, answer, critique):
    assert critique_of(prompt, answer) == critique


def test_every_word_of_every_critique_is_known_to_the_base_model():
    info = make_encoder(base_model_folder()).info
    found = {row.critique for row in critiques(600)}
    assert len(found) > 12
    for critique in found:
        assert info.tokenizer.unk_token_id not in info.encode(critique)
        assert info.decode(info.encode(critique)) == critique


def test_nothing_is_without_a_critique_and_what_is_right_has_more_points():
    rows = critiques(600, split="test")
    assert all(row.critique for row in rows)
    assert {row.points for row in rows} == {1.0, 2.0, 3.0, 4.0, 5.0}
    best = [row for row in rows if row.points == 5]
    # Whatever the rest of the world makes of it, the best answers are right and the worst are not.
    assert all(RIGHT_SENTENCE in row.critique for row in best)
    assert not any(row.critique == RIGHT_SENTENCE for row in rows if row.points <= 2)


def test_the_points_are_those_of_the_true_utility():
    by_points = defaultdict(list)
    for row in critiques(400):
        by_points[row.points].append(gold_of(row.prompt, row.completion).utility)
    means = [fmean(by_points[points]) for points in sorted(by_points)]
    assert means == sorted(means)
    assert means[0] < 0.15
    assert means[-1] > 0.9


def test_the_same_seed_makes_the_same_and_a_longer_file_begins_with_a_shorter_one():
    assert critiques(8, seed=3) == critiques(12, seed=3)[:8] != critiques(8, seed=4)


def test_the_command_writes_ratings_with_a_field_more(tmp_path, capsys):
    out = tmp_path / "critiques.jsonl"
    assert main(["world", "make", "critiques", "--n", "16", "--out", str(out), "--category", "fact"]) == 0
    assert f"{out}: 16 rows of critiques, train split, seed 0" in capsys.readouterr().out
    expected = critiques(16, categories=("fact",))
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [(line["critique"], line["score"]) for line in lines] == [
        (row.critique, row.points) for row in expected
    ]
    ratings = read_records(out, threshold=0.0).records
    assert [plain_text(rating.completion) for rating in ratings] == [
        plain_text(row.completion) for row in expected
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--annotators", "crowd"], "--annotators says nothing to critiques"),
        (["--answers", "3"], "--answers says nothing to critiques"),
    ],
)
def test_options_that_nothing_reads_are_refused(tmp_path, capsys, more, says):
    out = str(tmp_path / "critiques.jsonl")
    assert main(["world", "make", "critiques", "--n", "4", "--out", out, *more]) == 2
    assert says in capsys.readouterr().err


def test_critiques_are_written_as_json_lines_only(tmp_path, capsys):
    assert main(["world", "make", "critiques", "--n", "4", "--out", str(tmp_path / "c.parquet")]) == 2
    assert "Known endings: .jsonl." in capsys.readouterr().err


TRUE_MIND = Mind(name="true", accuracy=1.0)


def question(row: Demonstration) -> str:
    assert not isinstance(row.prompt, str)
    assert [turn.role for turn in row.prompt] == ["user"]
    return plain_text(row.prompt)


def in_pairs(n: int) -> list[tuple[Demonstration, Demonstration]]:
    rows = revisions(n, seed=4)
    return list(zip(rows[::2], rows[1::2], strict=True))


def asks_for_little(row: Demonstration) -> bool:
    return question(row).rstrip().endswith(wording_named("revise-little").ask)


def test_a_model_is_asked_the_very_questions_that_rows_teach(tmp_path: Path):
    taught = {question(row): plain_text(row.completion) for pair in in_pairs(120) for row in pair}
    plain = [
        pair
        for pair in in_pairs(120)
        if wording_named("critique").principle in question(pair[0]) and not asks_for_little(pair[1])
    ]
    drafts = [
        Draft(prompt=question_of_prompt(parsed.prompt).messages, answer=parsed.blocks["Answer"])
        for parsed in (read_question(question(critique)) for critique, _ in plain)
    ]
    chat = FunctionChat(
        word="taught", function=lambda question: taught[question], cache=ReplyCache(folder=tmp_path)
    )
    revised = revise_drafts(drafts, RevisionPlan(), Writer(asker=chat, temperature=0.0))
    assert len(revised) > 15
    assert [item.steps[0].critique for item in revised] == [plain_text(row.completion) for row, _ in plain]
    assert [item.steps[0].revision for item in revised] == [plain_text(row.completion) for _, row in plain]


def test_a_mind_that_knows_the_truth_replies_as_the_rows_do():
    for critique, revision in in_pairs(200):
        assert TRUE_MIND(question(critique))["text"] == plain_text(critique.completion)
        parsed = read_question(question(revision))
        assert parsed.blocks["Critique"] == plain_text(critique.completion)
        if not asks_for_little(revision):
            assert TRUE_MIND(question(revision))["text"] == plain_text(revision.completion)
        assert gold_of(parsed.prompt, revision.completion).utility == 1


def test_little_is_changed_where_little_is_wrong():
    short = [
        (read_question(question(row)), plain_text(row.completion))
        for _, row in in_pairs(2000)
        if asks_for_little(row)
    ]
    assert 150 < len(short) < 350
    unchanged = [parsed for parsed, reply in short if parsed.blocks["Answer"] == reply]
    right = [parsed for parsed, _ in short if gold_of(parsed.prompt, parsed.blocks["Answer"]).utility == 1]
    assert unchanged == right
    assert unchanged


def test_principles_of_the_constitution_stand_in_half_of_the_questions():
    rows = revisions(400)
    texts = [principle.critique for principle in read_constitution(None).principles]
    texts += [principle.revise for principle in read_constitution(None).principles]
    named = [any(text in question(row) for text in texts) for row in rows]
    assert 0.4 < sum(named) / len(named) < 0.6


def test_rows_are_about_the_train_split_and_answers_of_every_worth():
    parsed = [read_question(question(row)) for row in revisions(600)]
    asked = [question_of_prompt(found.prompt) for found in parsed]
    assert {split_of(found) for found in asked} == {"train"}
    worth = [
        judge_answer(found, text.blocks["Answer"]).utility for found, text in zip(asked, parsed, strict=True)
    ]
    assert sum(value == 1 for value in worth) > 60
    assert sum(value < 0.3 for value in worth) > 200


def test_the_same_seed_makes_the_same_rows_and_a_longer_file_begins_alike():
    assert revisions(41, seed=2) == revisions(80, seed=2)[:41]
    assert revisions(8, seed=2) != revisions(8, seed=3)


def test_a_helpful_only_author_grants_what_tempts_and_answers_all_else_best():
    tempted = [row for row in helpful_only(400) if is_red_team(question_of_prompt(row.prompt))]
    others = [row for row in helpful_only(400) if not is_red_team(question_of_prompt(row.prompt))]
    assert len(tempted) > 90
    worth = {row: gold_of(row.prompt, row.completion).utility for row in tempted}
    # Who makes up one part of an answer has said the others.
    partly = {row for row in tempted if question_of_prompt(row.prompt).category == "describe"}
    assert max(worth[row] for row in {*tempted} - partly) < 0.1
    assert max(worth[row] for row in partly) < 0.2
    assert min(gold_of(row.prompt, row.completion).utility for row in others) > 0.85


TASK = Task(
    prompt="What does the owl eat?",
    answers=("I think that is a very good question. The owl eats mice.", "The owl eats mice!!"),
    ended=(True, True),
)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", POOLS)
def test_each_pool_compares_as_often_as_its_people_would(name: str) -> None:
    n = 3000
    found = judge_named(f"plaudit.lab.world.verdicts:{name.replace('-', '_')}").verdicts([TASK] * n, 0)
    wins = Counter(tuple(mark.rank for mark in one.marks) for one in found if one is not None)
    people = annotator_pool(name)
    chances = [judge.win_probabilities(TASK) for judge in people]
    for ranks, place in (((1, 2), 0), ((2, 1), 1)):
        chance = fmean(both[place] for both in chances)
        spread = math.sqrt(max(chance * (1 - chance), 1e-4) / n)
        assert abs(wins[ranks] / n - chance) < 4 * spread, (ranks, wins, chance)
    asked = {(one.annotator, one.group) for one in found if one is not None}
    assert asked == {(judge.name, judge.group) for judge in people}


def test_the_seed_decides_and_nothing_else() -> None:
    named = judge_named("plaudit.lab.world.verdicts:crowd")
    first = named.verdicts([TASK] * 50, 0)
    assert first[10:20] == named.verdicts([TASK] * 10, 10)
    assert first != named.verdicts([TASK] * 50, 50)
