"""Wings plug in: the core stands without those that it does not know, and a stranger's is heard."""

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.wings import Verb, Wing, everything, load, offered, wings
from tests.engine.toy import write_rows
from tools.changed import imports, module_of
from tools.targets import WINGS
from tools.tree import sources

ROOT = Path(__file__).resolve().parents[2]
OF_PIPELINES = (
    *("collect.stage", "feedback.attack_page", "feedback.stages", "pictures.world.exam"),
    "pictures.world.making",
)
"""Modules of other wings that pipelines alone load: they are made of what `plaudit.runs` lists for stages."""
APART = ("lab", "runs", "serving")
"""Wings of which no other wing needs anything to be imported."""


def without(folder: Path, *gone: str) -> Path:
    """A copy of the package in which these wings are neither there nor named; what is to be on the path."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "src" / "plaudit", folder / "plaudit", ignore=ignore)
    for wing in gone:
        shutil.rmtree(folder / "plaudit" / wing)
    named = [f"{wing} = plaudit.{wing}.wing:WING" for wing in sorted(WINGS - {*gone})]
    install(folder, "plaudit", "\n".join(["[plaudit.wings]", *named]))
    return folder


def install(folder: Path, name: str, entry_points: str) -> None:
    place = folder / f"{name}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(entry_points + "\n")


def run(path: Path, *words: object, program: str | Path = "plaudit") -> str:
    start = [program] if isinstance(program, Path) else ["-m", program]
    done = subprocess.run(
        [sys.executable, *map(str, (*start, *words))],
        env=os.environ | {"PYTHONPATH": str(path)},
        cwd=path.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_wings_are_there_and_so_is_everything_that_they_name():
    assert {*wings()} == WINGS == {path.parent.name for path in (ROOT / "src/plaudit").glob("*/wing.py")}
    for kind in (field.name for field in fields(Wing)):
        for thing in everything(kind).values():
            if isinstance(thing, Verb):
                assert callable(load(f"{thing.module}:add_parser"))
            else:
                assert load(thing) is not None


def test_what_no_wing_offers_is_refused_by_its_name():
    with pytest.raises(UserError, match="goodbye"):
        offered("goodbye")


@pytest.mark.slow
def test_without_them_a_model_trains_and_answers(tmp_path, toy):
    path = without(tmp_path / "core", *APART)
    listed = run(path, "--help")
    assert "train" in listed
    assert not [verb for wing in APART for verb in wings()[wing].verbs if f"    {verb} " in listed]
    run(path, "data", "inspect", toy.data)
    out = tmp_path / "run"
    run(path, "train", "sft", "--model", toy.model, "--data", toy.data, "--out", out, "--steps", 2)
    assert (out / "model" / "config.json").exists()
    run(path, "sample", "--model", out / "model", "--prompt", "the cat", "--max-tokens", 4)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "the cat"}\n{"prompt": "two old dogs"}\n')
    words = ("--prompts", prompts, "--reward", "length:1-5", "--draw.max-tokens", 4, "--rounds", 1)
    run(path, "train", "grpo", "--model", out / "model", *words, "--out", tmp_path / "grpo")


def test_without_them_every_module_is_imported(tmp_path):
    path = without(tmp_path / "core", *APART)
    files = sources(path, ("plaudit",))
    modules = {".".join(source.path.with_suffix("").parts) for source in files}
    modules -= {f"plaudit.{name}" for name in OF_PIPELINES}
    script = "\n".join(
        f"import {name.removesuffix('.__init__')}" for name in sorted(modules) if "__main__" not in name
    )
    (tmp_path / "everything.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(path)}
    subprocess.run([sys.executable, tmp_path / "everything.py"], env=environment, check=True)


ALONE = """
import sys
from importlib import import_module
from plaudit.cli.main import main

model, pairs, out, missing, *core = sys.argv[1:]
for name in core:
    import_module(name)
train = ["train", "dpo", "--model", model, "--data", pairs, "--out", out, "--steps", "1"]
assert main([*train, "--held-out", "0", "--sample.rows", "0", "--sinks", "jsonl"]) == 0
judged = ["--prompts", pairs, "--judge", "length:1-5", "--max-tokens", "4", "--n", "4"]
assert main(["eval", "policy", f"{out}/model", model, *judged]) == 0
assert main(missing.split()) == 2
"""
"""Imports the core, trains and evaluates, and calls for what is not there: all in one process."""
MISSING = {
    "collect": "train rlhf --comparisons people --model {model} --prompts {pairs} --out {out}",
    "feedback": "eval reward judge:model:{model} --data {pairs}",
    "serving": (
        "train grpo --model {model} --prompts {pairs} --reward length:1-5 --out {out} "
        "--sampler http://127.0.0.1:9"
    ),
}
"""Of each wing a command that needs it, though the core knows its verb."""


@pytest.mark.slow
@pytest.mark.parametrize("wing", MISSING)
def test_without_one_the_core_is_imported_trains_and_evaluates(wing, tmp_path, toy):
    path = without(tmp_path / "core", wing)
    pairs = [{"prompt": f"{n} the cat?", "chosen": "sat on it.", "rejected": "saw dogs."} for n in range(8)]
    rows = write_rows(tmp_path / "pairs.jsonl", pairs)
    modules = [
        ".".join(source.path.with_suffix("").parts).removesuffix(".__init__")
        for source in sources(path, ("plaudit",))
        if "__main__" not in source.path.parts[-1] and source.path.parts[1] not in WINGS
    ]
    missing = MISSING[wing].format(model=toy.model, pairs=rows, out=tmp_path / "missing")
    (tmp_path / "alone.py").write_text(ALONE)
    words = (toy.model, rows, tmp_path / "run", missing, *modules)
    assert f"the wing {wing} of plaudit" in run(path, *words, program=tmp_path / "alone.py")


@pytest.mark.slow
@pytest.mark.parametrize("wing", APART)
def test_the_quick_tests_that_do_not_name_a_wing_pass_without_it(wing, tmp_path):
    path = without(tmp_path / "src", wing)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    files = ("pyproject.toml", "README.md", "constraints.txt")
    for folder in ("tools", "docs", "examples", "benchmarks", *files):
        (tmp_path / folder).symlink_to(ROOT / folder)
    chosen = files_without(wing)
    assert len(chosen) > 100
    words = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "-n", "2", *chosen)
    assert " passed" in run(path, *words, program="pytest")


def files_without(wing: str) -> list[str]:
    """Files of tests that reach no module of a wing, whether they import it or start its verbs."""
    files = sources(ROOT, ("src", "tests"))
    texts = {module_of(source.path): source for source in files}
    reached = {name: {*imports(source.tree, {*texts})} & {*texts} for name, source in texts.items()}
    verbs = [f'"{verb}"' for verb in wings()[wing].verbs]
    chosen = []
    for name, source in texts.items():
        if not source.path.name.startswith("test_") or source.path.parts[1] in {wing, "house"}:
            continue
        waiting, found = [name], {name}
        while waiting:
            waiting += (more := reached[waiting.pop()] - found)
            found |= more
        names = [other for other in found if other.startswith("tests.")]
        started = any(verb in texts[other].text for other in names for verb in verbs)
        if not started and not any(other.startswith(f"plaudit.{wing}") for other in found):
            chosen.append(source.path.as_posix())
    return chosen


def polite_package(site: Path) -> Path:
    """A package with a wing: a verb, a reward and a judge."""
    package = site / "polite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "wing.py").write_text(
        "from plaudit.wings import Verb, Wing\n"
        'WING = Wing(verbs={"thanks": Verb(module="polite.verb", purpose="count the thanks")},\n'
        '            rewards={"thanks": "polite.kinds:thanks"}, judges={"polite": "polite.kinds:POLITE"})\n'
    )
    (package / "kinds.py").write_text(
        "from plaudit.rewards.base import FunctionReward\n"
        "from plaudit.rewards.comparing import RewardJudge\n"
        "from plaudit.rewards.kinds import JudgeKind\n\n\n"
        "def thanks(word, device, dtype):\n"
        "    return FunctionReward(name=word, function=lambda prompt, answer: answer.count('thank'))\n\n\n"
        "def polite(word, settings):\n"
        "    return RewardJudge(name=word, reward=thanks(word, settings.device, settings.dtype))\n\n\n"
        "POLITE = JudgeKind(make=polite, check=lambda word: None)\n"
    )
    (package / "verb.py").write_text(
        "def add_parser(subparsers):\n"
        '    subparsers.add_parser("thanks").add_argument("text")\n\n\n'
        "def run(args):\n"
        '    print(args.text.count("thank"), "thanks")\n'
        "    return 0\n"
    )
    install(site, "polite", "[plaudit.wings]\npolite = polite.wing:WING")
    return package


def test_a_wing_of_another_package_brings_a_verb_a_reward_and_a_judge(tmp_path):
    package = polite_package(tmp_path / "site")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": path}

    def said(*words: object) -> str:
        command = [sys.executable, "-m", "plaudit", *map(str, words)]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        return done.stdout + done.stderr

    assert "count the thanks" in said("--help")
    assert said("thanks", "thank you, thank you") == "2 thanks\n"
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "Hi", "chosen": "thank you", "rejected": "no"}])
    judged = said("eval", "reward", "thanks:much", "polite:very", "--data", tmp_path / "rows.jsonl")
    assert "thanks:much" in judged
    assert "polite:very" in judged
    assert "plaudit:" not in judged, "a complaint"
    (package / "wing.py").write_text("from plaudit.wings import NoSuchName\n")
    refused = said("--help")
    assert "polite 1.0" in refused
    assert "polite.wing:WING" in refused
    (package / "wing.py").write_text("WING = 3\n")
    assert "polite.wing:WING is no plaudit.wings.Wing" in said("--help")
    (package / "wing.py").write_text(
        'from plaudit.wings import Verb, Wing\nWING = Wing(verbs={"world": Verb(module="a", purpose="b")})\n'
    )
    refused = said("--help")
    assert "lab and polite" in refused
    assert "'world'" in refused
