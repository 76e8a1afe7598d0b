"""Rows that teach to criticise and to revise: their questions, their truth, and whose prompts they hold."""

from pathlib import Path

from plaudit.data.records import Demonstration, plain_text
from plaudit.feedback.judges.cache import ReplyCache
from plaudit.feedback.judges.calling import FunctionChat
from plaudit.feedback.judges.constitution import read_constitution
from plaudit.feedback.judges.wording import wording_named
from plaudit.feedback.judges.writing import Writer
from plaudit.feedback.rounds import Draft, RevisionPlan, revise_drafts
from plaudit.lab.world.gold import gold_of, judge_answer
from plaudit.lab.world.making import is_red_team
from plaudit.lab.world.minds import Mind, read_question
from plaudit.lab.world.prompts import question_of_prompt, split_of
from plaudit.lab.world.teaching import helpful_only, revisions

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
