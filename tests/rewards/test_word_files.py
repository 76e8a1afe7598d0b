"""The files behind words of rewards and judges: from any folder, by content, and in no circle."""

import os
from pathlib import Path

import pytest

from plaudit.data.judging import Task
from plaudit.engine.run_folder import hash_path
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.registry import resolve_reward
from plaudit.rewards.word_files import content_hash, first_path, named_words, word_from, word_pieces
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.status import PipelineContext, compute_stage_key
from plaudit.runs.pipeline.store import PipelineFolder

OWL = Task(prompt="What does the owl eat?", answers=("Mice.", "Tea, I think."), ended=(True, True))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a function, a rubric, a jury of it and a cascade of the jury, each named from there."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "def terser(first, second): return 'first' if len(first) < len(second) else 'second'\n"
        "def short(answer): return -float(len(answer))\n"
        "def ask(question): return '3'\n"
    )
    (folder / "aspects.yaml").write_text("- {name: truth, description: it says what is so.}\n")
    (folder / "jury.yaml").write_text("- mine.py:terser\n- mine.py:short\n")
    (folder / "both.yaml").write_text("- {reward: 'judge:jury:jury.yaml', sure: 0.4}\n- length:1-20\n")
    return folder


WORDS = """
exact  length:1-20  pattern:a,b=c  http://h:1/score  gold  runs/reward  mine.py:polite  mine:polite
openai:http://h:1/v1#org/m:free,how=letter,draws=3  model:runs/a,b,how=points  model:$critic
call:package.mind:mind  judge:call:mine.py:ask,rubric=a.yaml  judge:jury:a.yaml,how=points
call:m.py:f,constitution=ours  cascade:a.yaml  blend:b/c.yaml  gated:d.yaml  spread:e.yaml
"""


@pytest.mark.parametrize("word", WORDS.split())
def test_the_pieces_of_a_word_are_the_word(word: str) -> None:
    assert "".join(map(str, word_pieces(word))) == word
    assert word_from(word, Path("/nowhere")) == word


def test_what_a_word_names_is_found_from_its_folder_and_then_from_any(own: Path, monkeypatch) -> None:
    monkeypatch.chdir(own)
    words = (
        "jury:jury.yaml",
        "cascade:both.yaml",
        "judge:call:mine.py:ask,rubric=aspects.yaml",
        "mine.py:short",
    )
    whole = [word_from(word, Path.cwd()) for word in words]
    assert whole[2] == f"judge:call:{own}/mine.py:ask,rubric={own}/aspects.yaml"
    monkeypatch.chdir(own.parent)
    assert judge_named(whole[0]).verdicts([OWL], 0)[0] is not None
    # The files name others that lie beside them, which are found from here as well.
    [row] = resolve_reward(whole[1]).scores([OWL])
    assert row[0] is not None
    assert named_words("jury:own/jury.yaml") == ["own/mine.py:terser", "own/mine.py:short"]
    check_judge("jury:own/jury.yaml", has_gold=False)
    assert judge_named("jury:own/jury.yaml").verdicts([OWL], 0)[0] is not None
    assert first_path(whole[2]) == own / "mine.py"


def test_a_words_content_is_its_text_and_all_that_lies_behind_it(own: Path, monkeypatch) -> None:
    monkeypatch.chdir(own)

    def hashes() -> list[str]:
        words = (
            *("cascade:both.yaml", "judge:call:mine.py:ask,rubric=aspects.yaml", "mine.py:short"),
            *("mine.py:ask", "jury:jury.yaml", "jury:jury.yaml,how=points"),
        )
        return [content_hash(word, hash_path) for word in words]

    before = hashes()
    assert len({*before}) == 6
    (own / "aspects.yaml").write_text("- {name: truth, description: it is true.}\n")
    assert [a == b for a, b in zip(before, hashes(), strict=True)] == [True, False, True, True, True, True]
    (own / "mine.py").write_text((own / "mine.py").read_text() + "\n")
    assert not {*before} & {*hashes()}
    # A copy of all of it elsewhere means the same.
    there = hashes()
    os.rename(own, own.parent / "moved")
    monkeypatch.chdir(own.parent / "moved")
    assert hashes() == there


def test_files_that_name_each_other_in_a_circle_are_refused_by_name(own: Path, monkeypatch) -> None:
    monkeypatch.chdir(own)
    (own / "a.yaml").write_text("- exact\n- blend:b.yaml\n")
    (own / "b.yaml").write_text(
        "- {reward: exact, weight: 0.5}\n- {reward: 'judge:jury:c.yaml', weight: 0.5}\n"
    )
    (own / "c.yaml").write_text("- exact\n- cascade:a.yaml\n")
    circle = r"a\.yaml → blend:.*b\.yaml → jury:.*c\.yaml → cascade:.*a\.yaml: these files name each other"
    with pytest.raises(UserError, match=circle):
        resolve_reward("cascade:a.yaml")
    for judge in (judge_named, lambda word: check_judge(word, has_gold=False)):
        with pytest.raises(UserError, match="name each other in a circle"):
            judge("jury:c.yaml")
    with pytest.raises(UserError, match="name each other in a circle"):
        content_hash("judge:cascade:a.yaml", hash_path)


def test_in_a_pipeline_such_words_are_whole_and_their_files_count_in_the_key(own: Path, monkeypatch) -> None:
    monkeypatch.chdir(own)
    (own / "pairs.jsonl").write_text('{"prompt": "p", "chosen": "a b", "rejected": "c"}\n')
    path = own / "pipeline.yaml"

    def key(word: str) -> str:
        stage = f"- agreement: {{do: judge-reward, data: pairs.jsonl, models: ['{word}']}}"
        path.write_text(f"name: own\nstages:\n{stage}\n")
        pipeline = read_pipeline(path)
        found = compute_stage_key(
            PipelineContext.of(PipelineFolder(path=own / "out"), pipeline), pipeline.stages[0], {}
        )
        assert found is not None
        assert pipeline.stages[0].inputs["models"] == (word_from(word, own),)
        return found.key

    first = key("jury:jury.yaml")
    assert key("jury:jury.yaml") == first
    assert key("jury:jury.yaml,how=points") != first
    called = key("call:mine.py:ask,how=points,rubric=aspects.yaml")
    (own / "mine.py").write_text((own / "mine.py").read_text() + "\n")
    assert key("jury:jury.yaml") != first
    assert key("call:mine.py:ask,how=points,rubric=aspects.yaml") != called
    assert key("mine.py:short") != key("mine.py:terser")
    monkeypatch.setenv("PLAUDIT_VALLEY", "fresh")
    assert key("jury:jury.yaml") != first, "in another valley the same settings ask for other rows"
