"""The checker of words finds a private word wherever a name is bound, and nothing in sentences."""

from pathlib import Path

import pytest

from tools import words
from tools.tree import sources

GLOSSARY = (Path(__file__).resolve().parents[2] / words.PAGE).read_text("utf-8")


def write_page(root: Path, text: str = GLOSSARY) -> None:
    (root / words.PAGE).parent.mkdir(exist_ok=True)
    (root / words.PAGE).write_text(text, "utf-8")


def check(
    root: Path, capsys: pytest.CaptureFixture[str], text: str, name: str = "a"
) -> tuple[int, list[str]]:
    path = root / "src" / "plaudit" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    write_page(root)
    return words.main(root), capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("class Told:\n    pass\n", "'Told' has the private word 'told'"),
        ("def told_by(x):\n    return x\n", "'told_by' has the private word 'told'"),
        ("def f(asked):\n    return asked\n", "'asked' has the private word 'asked'"),
        ("def f(*, kept=1):\n    return kept\n", "'kept'"),
        ("def f(*said):\n    return said\n", "'said'"),
        ("seen_NT = 1\n", "'seen_NT' has the private word 'seen'"),
        ("REWARDS_APART = 1\n", "'REWARDS_APART' has the private word 'apart'"),
        ("class A:\n    chance: float\n", "'chance' has the private word 'chance'"),
        ("def f(self):\n    self._said = 1\n", "'_said'"),
        ("import os as manners\n", "'manners'"),
        ("x = [one for one in range(3)]\n", "'one' is a private word"),
        ("x = lambda one: 1\n", "'one' is a private word"),
        ("for a, (one, b) in ():\n    pass\n", "'one' is a private word"),
        ("with open('a') as told:\n    pass\n", "'told'"),
        ("mean_metric('held_out/kl_root', 1, 2)\n", "the metric 'kl_root' is a private word: say sqrt_kl"),
        ("Metric(name='flat')\n", "the metric 'flat' is a private word: say frac_zero_std"),
        ("parser.add_argument('--asked')\n", "'asked' has the private word 'asked'"),
        ("parser.add_argument('-a', '--told-by')\n", "'told_by' has the private word 'told'"),
    ],
)
def test_a_private_word_is_found_where_a_name_is_bound(text, word, tmp_path, capsys):
    status, lines = check(tmp_path, capsys, text)
    assert status == 1
    assert any(line.startswith("src/plaudit/a.py:") and word in line for line in lines), lines
    assert lines[-1] == "1 files, 1 private names"


def test_a_module_may_not_be_called_so_either(tmp_path, capsys):
    status, lines = check(tmp_path, capsys, "x = 1\n", name="preference_remarks")
    assert (status, len(lines)) == (1, 2)
    assert "src/plaudit/preference_remarks.py:1:" in lines[0]


@pytest.mark.parametrize(
    "text",
    [
        '"""What one said when it was asked."""\n',
        "# told, kept and seen\nx = 'asked'\n",
        "leave_one_out = 1\n",
        "separately = undecided = flat = 1\n",
        "from library import told\n\nprint(told, library.asked)\n",
        "parser.add_argument('--asked', help=argparse.SUPPRESS)\n",
        "mean_metric('held_out/sqrt_kl', 1, 2)\n",
    ],
)
def test_sentences_old_options_and_names_of_others_are_left_as_they_are(text, tmp_path, capsys):
    assert check(tmp_path, capsys, text) == (0, ["1 files, 0 private names"])


def test_the_message_says_what_the_field_says(tmp_path, capsys):
    _, lines = check(tmp_path, capsys, "strangers = 1\n")
    assert lines[0] == "src/plaudit/a.py:1: 'strangers' has the private word 'strangers': say mismatched"


def test_the_page_decides_which_words_are_refused(tmp_path, capsys):
    write_page(tmp_path, GLOSSARY.replace("| `strangers` | mismatched |", "| `dreary` | plain |"))
    refused = words.refused_words(tmp_path)
    assert words.fault_of_name("strangers", refused) is None
    assert words.fault_of_name("DrearyRow", refused) == "'DrearyRow' has the private word 'dreary': say plain"


@pytest.mark.parametrize(
    ("word", "complaint"),
    [("rollout", "'rollout' is explained 2 times"), ("told", "'told' is explained, and refused in names")],
)
def test_a_word_has_one_meaning_and_is_not_refused_as_well(word, complaint, tmp_path):
    write_page(tmp_path, GLOSSARY.replace("| policy |", f"| {word} | What it is |\n| policy |", 1))
    faults = words.contradictions(tmp_path, words.refused_words(tmp_path))
    assert [fault.message for fault in faults] == [complaint]


@pytest.mark.parametrize("heading", words.HEADINGS.values())
def test_a_page_without_a_table_of_refused_words_is_an_error(heading, tmp_path):
    write_page(tmp_path, GLOSSARY.replace(heading, "Another"))
    with pytest.raises(ValueError, match=heading):
        words.refused_words(tmp_path)


def test_vague_names_are_counted_wherever_they_are_bound(tmp_path, capsys):
    text = "_found = [own for own in ()]\n\n\ndef look(found, *, found_rows):\n    print(known)\n"
    assert check(tmp_path, capsys, text)[0] == 0
    counts = words.times_bound(sources(tmp_path, ("src",)))
    assert counts == {"found": 2, "own": 1, "look": 1, "found_rows": 1}


def test_a_root_without_files_is_not_well(tmp_path, capsys):
    write_page(tmp_path)
    assert words.main(tmp_path) == 1
    assert "nothing to check was found" in capsys.readouterr().out
