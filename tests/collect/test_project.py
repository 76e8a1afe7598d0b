"""A project's file says what it means in few words, and whatever it cannot mean is refused by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.collect.project import (
    Project,
    guidelines_version,
    parse_settings,
    project_from_dict,
    project_to_dict,
    read_project,
)
from plaudit.collect.refusals import FieldError
from plaudit.errors import UserError

WHOLE = """
project: helpful
ask: pair
question: Which answer is better?
guidelines: guidelines.md
scale: [slightly, clearly, much]
flags: [harmful, false, unfinished, private]
overlap: 2
gold: {rows: gold.jsonl, share: 0.1}
qualify: {rows: first.jsonl, n: 25, floor: 0.7}
repeat: 0.02
talks-to: http://127.0.0.1:8000/v1#ppo
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "project.yaml"
    path.write_text(text, "utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as refused:
        read_project(written(folder, text))
    return str(refused.value)


def test_a_whole_file_is_read_in_the_words_of_the_docs(tmp_path):
    (tmp_path / "guidelines.md").write_text("Be kind.", "utf-8")
    assert read_project(written(tmp_path, WHOLE)) == Project(
        name="helpful",
        guidelines="Be kind.",
        overlap=2,
        gold_rows=str(tmp_path / "gold.jsonl"),
        gold_share=0.1,
        qualify_rows=str(tmp_path / "first.jsonl"),
        qualify_n=25,
        qualify_floor=0.7,
        repeat=0.02,
        talks_to="http://127.0.0.1:8000/v1#ppo",
    )


def test_a_name_is_enough_hyphens_are_underscores_and_words_that_yaml_takes_for_truths_stay_words(tmp_path):
    project = read_project(written(tmp_path, "project: helpful"))
    assert project == Project(name="helpful")
    assert (project.limit, replace(project, most=2).limit) == (3, 2)
    texts = [f"name: p\nlease{mark}minutes: 5\nprompt{mark}limit: 2" for mark in "-_"]
    first, second = (read_project(written(tmp_path, text)) for text in texts)
    assert first == second == Project(name="p", lease_minutes=5, prompt_limit=2)
    project = read_project(written(tmp_path, "name: p\nflags: [false, No, other]\nscale: [no, yes]"))
    assert (project.flags, project.scale) == (("false", "No", "other"), ("no", "yes"))


BARD = """
name: p
ask: rate
aspects:
  helpfulness: [Not at all, Slightly, Somewhat, Very, Extremely]
  presentation: [Poor, Adequate, Excellent]
  polite: [No, Yes]
  length:
"""


def test_aspects_may_have_a_word_for_each_level(tmp_path):
    project = read_project(written(tmp_path, BARD))
    assert project.aspects == ("helpfulness", "presentation", "polite", "length")
    assert [project.levels(aspect) for aspect in project.aspects] == [5, 3, 2, 5]
    assert project.words_of("polite") == ("No", "Yes")
    assert project.words_of("length") == project.words_of("overall") == ()
    assert project_from_dict(json.loads(json.dumps(project_to_dict(project)))) == project


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(
            (f"name: p\n{text}", says)
            for text, says in (
                ("aspects: {tone: [Poor]}", "aspects.tone: expected 2 to 20 words, one for each level"),
                ("aspects: {tone: Poor}", "aspects.tone: expected 2 to 20 words"),
                ("aspects: {tone: [Poor, Poor]}", "each once, got ['Poor', 'Poor']"),
                ("aspects: {tone: [1, 2]}", "aspects.tone: expected 2 to 20 words"),
                ("aspects: {tone: [[Poor], Good]}", "aspects.tone: expected 2 to 20 words"),
                ("aspects: {tone: [Poor, '']}", "anchors: expected words, found an empty text"),
                ("aspects: {1: [Poor, Good]}", "aspects: expected a list, each text"),
                ("aspects: [tone]\nanchors: [[Poor, Good], [Bad, Well]]", "anchors has the words of each"),
                ("anchors: [[Poor, Good]]", "anchors has the words of each aspect"),
                ("aspects: [tone]\nanchors: [[Poor]]", "of none, or of 2 to 20"),
            )
        ),
        ("", "project: expected a name"),
        ("ask: pair", "project: expected a name"),
        ("[1, 2]", "expected settings (name: value)"),
        ("name: p\nproject: q", "name is set twice"),
        ("name: p\noverlp: 2", "unknown key overlp; did you mean overlap?"),
        ("name: p\ngold: {shar: 0.1}", "unknown key gold.shar; did you mean share?"),
        ("name: p\nqualify: {share: 0.1}", "unknown key qualify.share"),
        ("name: p\ngold: {share: 0.1}\ngold_share: 0.2", "gold_share is set twice"),
        ("name: p\ngold: 3", "unknown key gold"),
        ("name: p\n1: 2", "unknown key 1"),
        ("name: p\noverlap: true", "overlap: expected a whole number, got True"),
        ("name: p\noverlap: 2.0", "overlap: expected a whole number, got 2.0"),
        ("name: p\noverlap: two", "overlap: expected a whole number, got 'two'"),
        ("name: p\nties: 3", "ties: expected true or false, got 3"),
        ("name: p\nask: pear", "got 'pear'; did you mean pair?"),
        ("name: p\nflags: harmful", "flags: expected a list"),
        ("name: p\nguidelines: none.md", "guidelines: none.md cannot be read"),
        ('name: p\nguidelines: "a\\0b"', "guidelines: expected a text without it, found a NUL character"),
        ('name: p\nquestion: "\\ud800"', "question: expected UTF-8"),
        ("name: p\nquestion: " + "x" * 10_001, "question: expected at most 10000, found 10001 characters"),
        ("name: p\nflags: ['']", "flags: expected words, found an empty text"),
    ],
)
def test_what_a_file_cannot_mean_is_refused_by_name(tmp_path, text, says):
    assert says in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": ""}, "a name is letters"),
        ({"name": "a/b"}, "a name is letters"),
        ({"ask": "guess"}, "ask is one of pair, rank, rate, write, steps, talk, attack"),
        ({"scale": ()}, "scale has 1 to 10 words"),
        ({"scale": ("a", "a")}, "scale has 1 to 10 words, each once"),
        ({"flags": ("a", "a")}, "flags, aspects and upsetting categories are named once each"),
        ({"upsetting": ("war", "war")}, "flags, aspects and upsetting categories are named once each"),
        ({"points": 1}, "points is 2 to 100"),
        ({"overlap": 0}, "overlap is 1 to 100"),
        ({"overlap": 3, "most": 2}, "most is at least the overlap"),
        ({"gold_share": 1.5}, "are from 0 to 1"),
        ({"repeat": float("nan")}, "are from 0 to 1"),
        ({"gold_share": 0.6, "repeat": 0.6}, "together below 1"),
        ({"qualify_n": -1}, "qualify_n is 0 to 1000"),
        ({"prompt_limit": 0}, "prompt_limit is at least 1"),
        ({"lease_minutes": 0}, "lease_minutes is 1 to 1440"),
        ({"ask": "talk"}, "talk and attack need talks_to"),
        ({"ask": "attack", "talks_to": "ftp://h"}, "talk and attack need talks_to"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(settings, says):
    with pytest.raises(UserError, match="project") as refused:
        Project(**{"name": "p", **settings})
    assert says in str(refused.value)


def test_a_text_that_no_database_can_hold_is_refused_by_its_field():
    with pytest.raises(FieldError) as refused:
        Project(name="p", aspects=("kind", "a\0b"))
    assert (refused.value.field, refused.value.found) == ("aspects", "a NUL character")


# A NUL, and half of a letter, are refused by their field: another test.


def test_a_log_of_a_newer_version_is_not_read_as_if_it_were_understood():
    with pytest.raises(UserError, match="settings that this plaudit does not know: colour"):
        project_from_dict({"name": "p", "colour": "red"})
    with pytest.raises(UserError, match="overlap: expected a whole number, got True"):
        project_from_dict({"name": "p", "overlap": True})


def test_settings_that_were_sent_are_checked_as_those_of_a_file_words_of_levels_too():
    assert parse_settings({"project": "p", "talks-to": None}, "settings") == Project(name="p")
    with pytest.raises(UserError, match="settings: unknown key overlp; did you mean overlap"):
        parse_settings({"project": "p", "overlp": 2}, "settings")
    sent = {"name": "p", "ask": "rate", "aspects": {"layout": ["Poor", "Good"], "tone": []}}
    assert parse_settings(sent, "settings").anchors == (("Poor", "Good"), ())
    with pytest.raises(UserError, match="settings: anchors is set twice"):
        parse_settings({**sent, "anchors": []}, "settings")


def test_guidelines_of_other_words_have_another_version():
    first, second = (
        guidelines_version(Project(name="p", guidelines=text)) for text in ("Be kind.", "Be fair.")
    )
    assert first != second
    assert {len(first), len(second)} == {12}
    assert guidelines_version(Project(name="p")) == ""
