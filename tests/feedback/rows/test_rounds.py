"""Critique and revision in rounds: what is asked, what is kept, and what is left out and counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.records import Comparison, Demonstration, Message, Prompt, Rating, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judges.constitution import read_constitution
from plaudit.feedback.judges.money import CapReachedError, Purse
from plaudit.feedback.judges.replies import REFUSED, UNREADABLE
from plaudit.feedback.judges.writing import Writer
from plaudit.feedback.rounds import (
    EMPTY_ANSWER,
    OTHER_ANSWER,
    UNCHANGED,
    Draft,
    Revised,
    RevisionPlan,
    Revisions,
    drafts_of,
    estimated_revisions,
    revise_drafts,
)
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.minds import Mind
from plaudit.lab.world.prompts import question_of_prompt
from tests.feedback.judges.judges import QUICK, completion, question
from tests.rewards.server import serving

DRAFTS = [
    Draft(prompt=task.prompt, answer=task.answers[0][0].content, category=task.category)
    for task in answer_tasks(32, answers=1, split="train", seed=2)
]


def writer(url: str, folder: Path, settings: str = "", model: str = "world", **more: Any) -> Writer:
    word = f"openai:{url.removesuffix('/score').removesuffix('/v1')}/v1#{model}{settings}"
    return writer_named(word, ModelJudgeSettings(retry_policy=QUICK, cache=folder, **more))


def worth(draft: Draft, answer: str) -> float:
    return judge_answer(question_of_prompt(draft.prompt), answer).utility


def blocks(text: str) -> dict[str, str]:
    found, header = dict[str, str](), ""
    for line in text.splitlines():
        if line.startswith("> "):
            found[header] = f"{found[header]}\n{line[2:]}" if header in found else line[2:]
        else:
            header = line.removesuffix(":")
    return found


def test_a_reviser_that_reads_rightly_makes_every_answer_worth_more_or_leaves_it(tmp_path):
    with MindServer([Mind(accuracy=1.0)]) as server:
        found = revise_drafts(DRAFTS, RevisionPlan(), writer(server.url, tmp_path))
    assert {item.outcome for item in found} == {"revised", UNCHANGED}
    for item in found:
        assert worth(item.draft, item.revision or item.draft.answer) >= worth(item.draft, item.draft.answer)
    rows = Revisions(items=tuple(found), annotator="world@1")
    assert sum(worth(item.draft, item.revision) for item in found if item.revision) > sum(
        worth(item.draft, item.draft.answer) for item in found if item.revision
    )
    assert [row.chosen for row in rows.pairs] == [row.completion for row in rows.demonstrations]
    assert {row.group for row in rows.pairs} == {"ai"}
    assert all(row.chosen != row.rejected for row in rows.pairs)


def test_each_round_goes_on_from_the_last_revision_with_a_principle_that_was_not_drawn_before(tmp_path):
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        shown = blocks(question(body))
        return completion(f"{shown['Answer']}+" if "Critique" in shown else f"critique of {shown['Answer']}")

    plan = RevisionPlan(rounds=4, constitution=read_constitution(None))
    with serving(reply) as server:
        model = writer(server.url, tmp_path)
        [found] = revise_drafts([Draft(prompt="Hi", answer="a")], plan, model)
    assert [step.critique for step in found.steps] == [f"critique of a{'+' * n}" for n in range(4)]
    assert found.revision == "a++++"
    names = [step.principle for step in found.steps]
    assert len({*names}) == 4
    by_name = {principle.id: principle for principle in plan.constitution.principles}  # pyright: ignore
    # A critique is asked for in the principle's words of critics, a revision in those of revisers.
    for name, critique, revision in zip(names, server.asked[::2], server.asked[1::2], strict=True):
        assert by_name[name].critique in question(critique)
        assert by_name[name].revise in question(revision)
        assert by_name[name].revise not in question(critique)
    [row] = Revisions(items=(found,), annotator="m").step_rows(plan, model)
    assert row["outcome"] == "revised"
    assert row["characters_changed"] == 4
    assert row["wordings"] == {"critique": "critique-1-t0.7-256", "revise": "revise-1-t0.7-256"}
    assert row["tokens"] == found.tokens > 0


def test_unchanged_empty_refused_and_failed_revisions_are_left_out_and_counted(tmp_path):
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        shown = blocks(question(body))
        answer = shown["Answer"]
        if "Critique" not in shown:
            return completion(None, refusal="No.") if answer == "refused" else completion("Well.")
        sent = {"unchanged": completion(" unchanged\n"), "empty": completion("")}
        return sent.get(answer, completion("Better."))

    drafts = [Draft(prompt="Hi", answer=word) for word in ("fine", "unchanged", "empty", "refused")]
    with serving(reply) as server:
        found = revise_drafts(drafts, RevisionPlan(), writer(server.url, tmp_path))
    rows = Revisions(items=tuple(found), annotator="m")
    kinds = ("revised", UNCHANGED, f"revision {UNREADABLE}", f"critique {REFUSED}")
    assert rows.outcomes == dict.fromkeys(kinds, 1)
    assert [row.completion for row in rows.demonstrations] == ["Better."]
    assert rows.texts == (["fine"], ["Better."])
    with pytest.raises(UserError, match="no answer was revised, so there are no rows"):
        Revisions(items=tuple(found[1:]), annotator="m").rows("pairs")


def test_a_later_round_that_fails_leaves_the_revision_of_the_earlier_one(tmp_path):
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        shown = blocks(question(body))
        if "Critique" in shown:
            return completion("Better.")
        return completion("Well.") if shown["Answer"] == "bad" else completion(None, refusal="No.")

    with serving(reply) as server:
        plan, draft = RevisionPlan(rounds=3), Draft(prompt="Hi", answer="bad")
        [found] = revise_drafts([draft], plan, writer(server.url, tmp_path))
    assert found.revision == "Better."
    assert found.failure is not None
    assert (found.failure.round, found.failure.step, found.failure.reason) == (2, "critique", REFUSED)


def test_a_minimal_revision_is_asked_for_in_words_of_its_own_and_has_one_round(tmp_path):
    with MindServer([Mind(accuracy=1.0)]) as server, serving(lambda *_: completion("Yes.")) as listener:
        writer(listener.url, tmp_path / "a").texts(
            [_chain_question(RevisionPlan(minimal=True)), _chain_question(RevisionPlan())], 0
        )
        found = revise_drafts(DRAFTS[:4], RevisionPlan(minimal=True), writer(server.url, tmp_path / "b"))
    texts = {question(body) for body in listener.asked}
    assert sum("change as little of it as you can" in text for text in texts) == 1
    assert any(item.revision for item in found)
    assert (
        RevisionPlan(minimal=True).version(writer(server.url, tmp_path / "b")).startswith("revise-little-1")
    )
    with pytest.raises(UserError, match="one round that changes little"):
        RevisionPlan(rounds=2, minimal=True)


def _chain_question(plan: RevisionPlan) -> Any:
    from plaudit.feedback.judges.wording import Question

    return Question(wording=plan.revise, prompt="Hi", blocks=(("Answer", "No."), ("Critique", "Rude.")))


def test_what_is_estimated_is_at_least_what_it_costs_and_nothing_is_asked_for_it(tmp_path):
    plan = RevisionPlan(rounds=2)
    with MindServer([Mind(price="10/30")]) as server:
        model = writer(server.url, tmp_path, ",price=10/30")
        before = estimated_revisions(DRAFTS, plan, model)
        assert server.counts.requests == 0
        found = revise_drafts(DRAFTS, plan, model)
        after = estimated_revisions(DRAFTS, plan, model)
    paid = sum(item.price for item in found)
    assert before.cost is not None
    assert before.cost > paid > 0
    assert before.questions == after.questions == after.cached == 4 * len(DRAFTS)
    assert after.cost == pytest.approx(paid)


def test_a_run_that_a_cap_stops_goes_on_and_asks_nothing_twice(tmp_path):
    def run(cap: float | None) -> list[Revised]:
        purse = Purse(cap)
        return revise_drafts(
            DRAFTS, RevisionPlan(), writer(server.url, tmp_path, ",price=10/30", purse=purse)
        )

    with MindServer([Mind(price="10/30")]) as server:
        with pytest.raises(CapReachedError, match="the same command goes on"):
            run(0.03)
        stopped = server.counts.to_json()["replies"]
        found = run(None)
        counts = server.counts.to_json()
        assert 0 < stopped < counts["replies"] == 2 * len(DRAFTS)
        assert counts["replied_twice"] == 0
        assert run(None) == found
        assert server.counts.to_json() == counts


def test_answers_come_of_rows_of_every_kind_each_once():
    prompt, call = user_turn("Hi"), Message(role="assistant", content="", reasoning="Hm")
    records = [
        Demonstration(prompt=prompt, completion=assistant_turn("Yo."), category="talk"),
        Rating(prompt=prompt, completion=assistant_turn("Yo."), score=1.0),
        Comparison(prompt=prompt, chosen=assistant_turn("Hello."), rejected=assistant_turn(" ")),
        Demonstration(prompt=prompt, completion=(*assistant_turn("One."), *user_turn("Two?"), call)),
        Prompt(prompt="Hi"),
    ]
    found, left_out = drafts_of(records)
    assert [(draft.answer, draft.category) for draft in found] == [("Yo.", "talk"), ("Hello.", None)]
    assert left_out == {EMPTY_ANSWER: 1, OTHER_ANSWER: 1}
    assert len(drafts_of(records, n=1)[0]) == 1


def test_an_answer_of_a_plain_text_begins_with_the_blank_that_it_had(tmp_path):
    with serving(lambda *_: completion("4")) as server:
        draft = Draft(prompt="2 + 2 =", answer=" 5")
        found = revise_drafts([draft], RevisionPlan(), writer(server.url, tmp_path))
    [row] = Revisions(items=tuple(found), annotator="m").pairs
    assert (row.chosen, row.rejected) == (" 4", " 5")


@pytest.mark.parametrize("rounds", [0, 5, -1])
def test_rounds_are_one_to_four(rounds):
    with pytest.raises(UserError, match="expected 1 to 4"):
        RevisionPlan(rounds=rounds)


def test_where_fewer_principles_fit_there_are_fewer_rounds(tmp_path):
    texts = {"choose": "c", "critique": "Look.", "revise": "Mend."}
    file = tmp_path / "constitution.yaml"
    file.write_text(json.dumps([{"id": "one", **texts}, {"id": "two", **texts, "categories": ["harmful"]}]))
    plan = RevisionPlan(rounds=2, constitution=read_constitution(file))
    count = {
        category: len(plan.principles(Draft(prompt="Hi", answer="Yo", category=category)))
        for category in ("harmful", "fact")
    }
    assert count == {"harmful": 2, "fact": 1}
