"""combined.json is read as it was written; what is damaged in it is named, and nothing is made of itself."""

import json
import shutil
from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.models.reward_model import Normalisation
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import CombinationManifest, read_manifest, save_combination
from plaudit.rewards.load import load_reward

MANNERS = [
    Combination(how="mean"),
    Combination(how="min", normal=(Normalisation(offset=1.5), Normalisation(scale=0.1))),
    Combination(how="cautious", k=2),
    Combination(how="weighted", weights=(0.25, -1)),
    Combination(how="gated", gate=1, below=-1.5),
]


def _folders(where: Path, *names: str) -> list[Path]:
    for name in names:
        (where / name).mkdir(parents=True)
    return [where / name for name in names]


@pytest.mark.parametrize("combination", MANNERS, ids=lambda one: one.how)
def test_each_manner_is_read_as_it_was_written(tmp_path, combination):
    members = _folders(tmp_path, "a", "elsewhere/b")
    path = save_combination(tmp_path / "both", members, combination)
    assert path == tmp_path / "both" / "combined.json"
    found = read_manifest(tmp_path / "both")
    assert isinstance(found, CombinationManifest)
    assert found.combination == combination
    assert [folder.resolve() for folder in found.folders] == members


def test_what_lies_in_the_folder_or_beside_it_moves_with_it_and_the_rest_stays(tmp_path):
    inner, beside, far = _folders(tmp_path, "runs/all/members/0", "runs/beside", "far/away")
    save_combination(tmp_path / "runs/all", [inner, beside, far], Combination(how="mean"))
    said = json.loads((tmp_path / "runs/all/combined.json").read_text())
    assert said["members"] == ["members/0", "../beside", str(far)]
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    found = read_manifest(tmp_path / "moved/all")
    assert isinstance(found, CombinationManifest)
    wanted = [tmp_path / "moved/all/members/0", tmp_path / "moved/beside", far]
    assert [folder.resolve() for folder in found.folders] == wanted


def test_a_path_of_the_working_folder_is_found_from_anywhere(tmp_path, monkeypatch):
    _folders(tmp_path, "here/a", "there")
    monkeypatch.chdir(tmp_path / "here")
    save_combination(Path("both"), [Path("a")], Combination(how="mean"))
    monkeypatch.chdir(tmp_path / "there")
    found = read_manifest(tmp_path / "here/both")
    assert isinstance(found, CombinationManifest)
    assert found.folders[0].resolve() == tmp_path / "here/a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "a JSON list and not an object"),
        ('{"how": "sum", "members": ["a"]}', "its how is 'sum'; it is one of implicit, steps, group, mean"),
        ('{"how": "mean"}', "members is missing; mean needs it"),
        ('{"how": "mean", "members": ["a"], "wieghts": [1]}', "mean knows no wieghts"),
        ('{"how": "mean", "members": ["a"], "beta": 1}', "mean knows no beta"),
        ('{"how": "mean", "members": []}', "needs members"),
        ('{"how": "mean", "members": ["a", "gone"]}', "made of .*gone, and there is no such folder"),
        ('{"how": "mean", "members": [3]}', "3 is not a path"),
        ('{"how": "mean", "members": 3}', "a value is not of its kind"),
        ('{"how": "weighted", "members": ["a", "b"], "weights": [1]}', "1 weights for 2 rewards"),
        ('{"how": "weighted", "members": ["a", "b"], "weights": [1, true]}', "True is not a number"),
        ('{"how": "weighted", "members": ["a", "b"], "weights": [1, NaN]}', "not a finite number"),
        ('{"how": "cautious", "members": ["a"], "k": "1"}', "'1' is not a number"),
        ('{"how": "gated", "members": ["a", "b"], "gate": 2, "below": 0}', "the gate is 2"),
        ('{"how": "gated", "members": ["a", "b"], "gate": 0.5, "below": 0}', "0.5 is not a whole number"),
        ('{"how": "mean", "members": ["a"], "normal": [{"scale": 0}]}', "above 0, not 0"),
        ('{"how": "mean", "members": ["a"], "normal": [{"mean": 0}]}', "a value is not of its kind"),
        ('{"how": "implicit", "policy": "a", "reference": "b"}', "beta is missing"),
        ('{"how": "implicit", "policy": "a", "reference": "b", "beta": 0}', "expected a number above 0"),
        ('{"how": "steps", "model": "a", "reading": "sum"}', "not by 'sum'"),
    ],
)
def test_what_is_damaged_is_named_with_the_file(tmp_path, text, words):
    [folder, _, _] = _folders(tmp_path, "one", "one/a", "one/b")
    (folder / "combined.json").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        load_reward(folder)
    assert str(folder / "combined.json") in str(caught.value)


def test_nothing_is_written_of_members_that_are_not_there_or_do_not_fit(tmp_path):
    [a] = _folders(tmp_path, "a")
    for members, words in (([a, tmp_path / "gone"], "no such folder"), ([a, a], "1 weights for 2")):
        how = Combination(how="weighted", weights=(1.0,) * (1 if "weights" in words else 2))
        with pytest.raises(UserError, match=words):
            save_combination(tmp_path / "both", members, how)
    assert not (tmp_path / "both").exists()


def test_a_reward_is_never_made_a_member_of_itself(tmp_path):
    [a, b, c] = _folders(tmp_path, "a", "b", "c")
    save_combination(b, [a], Combination(how="mean"))
    save_combination(c, [b, a], Combination(how="mean"))
    for member in (c, b, a):
        with pytest.raises(UserError, match="cannot be a member of it"):
            save_combination(a, [member], Combination(how="mean"))
    assert not (a / "combined.json").exists()


def test_a_circle_that_was_written_by_hand_is_told_not_followed(tmp_path):
    a, b = _folders(tmp_path, "a", "b")
    for one, other in ((a, "../b"), (b, "../a")):
        (one / "combined.json").write_text(json.dumps({"how": "mean", "members": [other]}))
    with pytest.raises(UserError, match="made of itself, by way of"):
        load_reward(a)
    [c] = _folders(tmp_path, "c")
    save_combination(c, [a], Combination(how="mean"))
