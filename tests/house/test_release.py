"""make release: what keeps a commit from being the release that it says it is."""

from pathlib import Path

import pytest

from tools.release import release_faults, stated_versions

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n',
    "src/plaudit/__init__.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "## Unreleased\n\n## 1.2.0 — 2027-01-31\n\n## 1.1.0 — 2026-12-01\n",
    "CITATION.cff": "version: 1.2.0\n",
}


def faults(root: Path, *tags: str, changed: tuple[str, ...] = (), **texts: str) -> list[str]:
    for name, text in (FILES | texts).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [*release_faults(root, [*tags], [*changed])]


def test_this_repository_says_one_version_everywhere():
    stated = stated_versions(ROOT)
    assert None not in stated.values()
    assert len({*stated.values()}) == 1, stated


def test_a_release_is_tagged_and_says_its_version_everywhere(tmp_path):
    assert faults(tmp_path, "v1.2.0") == []
    assert "git tag -a v1.2.0" in faults(tmp_path, "v1.1.0")[0]
    assert " M README.md" in faults(tmp_path, "v1.2.0", changed=(" M README.md",))[0]


@pytest.mark.parametrize("name", ["src/plaudit/__init__.py", "CHANGELOG.md", "CITATION.cff"])
def test_a_file_that_says_another_version_is_named(name, tmp_path):
    text = FILES[name].replace("1.2.0", "1.1.0")
    assert faults(tmp_path, "v1.2.0", **{name: text}) == [
        f"{name} says version 1.1.0, pyproject.toml says 1.2.0"
    ]


def test_a_changelog_without_a_dated_version_says_none(tmp_path):
    [fault] = faults(tmp_path, "v1.2.0", **{"CHANGELOG.md": "## Unreleased\n"})
    assert fault.startswith("CHANGELOG.md says version None")
