"""The settings in pyproject.toml cover the packages that exist, so that a new one cannot slip past a rule."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CONTRACTS = {contract["name"]: contract for contract in SETTINGS["tool"]["importlinter"]["contracts"]}


def existing(*names: str) -> set[str]:
    places = {name: ROOT / "src" / "plaudit" / name.replace(".", "/") for name in names}
    return {
        name
        for name, place in places.items()
        if (place / "__init__.py").exists() or place.with_suffix(".py").exists()
    }


@pytest.mark.parametrize(
    ("contract", "packages"),
    [
        ("Records, their readers and files never reach torch", ("data", "files")),
        ("The label store and judges on servers never reach torch", ("feedback.judges", "collect")),
        (
            "Records need the standard library only",
            ("data.records", "data.judging", "data.transforms", "data.generative_judging"),
        ),
        ("Losses and advantages are arithmetic on tensors", ("losses", "advantages")),
    ],
)
def test_a_contract_names_every_package_that_it_is_about(contract, packages):
    named = {module.removeprefix("plaudit.") for module in CONTRACTS[contract]["source_modules"]}
    assert named == existing(*packages)


def test_pure_packages_are_checked_strictly():
    strict = {Path(folder).stem for folder in SETTINGS["tool"]["basedpyright"]["strict"]}
    assert strict >= existing("tensors", "losses", "advantages")
    assert strict >= {"records", "judging", "transforms", "generative_judging"}


def test_the_constraints_pin_what_the_project_needs():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    project = SETTINGS["project"]
    extras = project["optional-dependencies"]
    pinned_extras = ("dev", "lora", "data", "collect", "postgres", "tensorboard")
    needed = [*project["dependencies"], *(name for extra in pinned_extras for name in extras[extra])]
    assert {requirement.partition(">=")[0].lower() for requirement in needed} <= pinned
    assert not [line for line in lines if line.startswith("-") or "+cpu" in line.partition("#")[0]]
