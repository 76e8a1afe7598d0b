"""The ``plaudit`` command from outside: messages, exit codes, and how it is stopped."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import plaudit
from plaudit.cli.main import main
from plaudit.config import all_settings
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.methods.registry import config_types

ROOT = Path(__file__).resolve().parents[2]
PLAUDIT = str(Path(sys.executable).parent / "plaudit")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PLAUDIT, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_version_is_the_packages_own_and_help_names_the_verbs_without_a_verb_on_standard_error():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"plaudit {plaudit.__version__}\n", "")
    done = run("--help")
    assert done.returncode == 0
    assert "\n    data " in done.stdout
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run("--help").stdout


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "plaudit", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == run("--version").stdout


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dta"], "there is no 'dta'; did you mean data?\nSee plaudit --help"),
        (["xyzzy"], "there is no 'xyzzy'; choose from "),
        (["--versoin"], "unknown option --versoin; did you mean --version?\nSee plaudit --help"),
        (["data", "inspct"], "there is no 'inspct'; did you mean inspect?\nSee plaudit data --help"),
        (
            ["data", "inspect", "a", "--formt", "x"],
            "unknown option --formt; did you mean --format?\nSee plaudit data inspect --help",
        ),
        (["data", "inspect", "a", "--formt=x"], "unknown option --formt; did you mean --format?"),
        (["data", "inspect", "a", "b"], "unexpected argument 'b'\nSee plaudit data inspect --help"),
        (["data", "inspect", "a", "--form", "x"], "unknown option --form; did you mean --format?"),
    ],
)
def test_what_does_not_exist_is_answered_with_the_nearest_that_does(arguments, message):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("plaudit: ")
    assert message in done.stderr


@pytest.mark.one_in(5)
@pytest.mark.parametrize("method", ["dpo", "grpo", "sft", "rejection", "rlhf"])
def test_a_method_that_is_given_for_a_verb_is_answered_with_its_command(method):
    done = run(method, "--model", "base")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"plaudit: {method} is a way to train: plaudit train {method} --help says")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("option", ["--learning_rate", "--learning_rate=1e-5", "--Learning-Rate"])
def test_an_option_with_an_underscore_is_answered_with_the_one_that_is_meant(option):
    done = run("train", "dpo", option)
    assert done.returncode == 2
    assert "did you mean --learning-rate?" in done.stderr


MODEL_COMMANDS = [
    ("train", "sft", "--data", "rows.jsonl", "--out", "run", "--model"),
    ("check", "dpo", "--data", "rows.jsonl", "--model"),
    ("plan", "sft", "--data", "rows.jsonl", "--model"),
    ("train", "distil", "--model", ".", "--data", "rows.jsonl", "--out", "run", "--teacher"),
    ("train", "dpo", "--model", ".", "--data", "rows.jsonl", "--out", "run", "--reference.model"),
    ("sample", "--prompt", "Hi", "--model"),
    ("chat", "--model"),
    ("eval", "policy", "--prompts", "rows.jsonl", "--judge", "length:1-9"),
    ("eval", "reward", "--data", "rows.jsonl"),
]


def test_a_model_or_a_file_that_is_not_there_is_said_before_torch_is_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    commands = [[*words, "/no/such/model"] for words in MODEL_COMMANDS]
    commands += [["train", "dpo", "--model", ".", "--out", "run", "--data", "/no/such/model.jsonl"]]
    script = (
        "import contextlib, io, json, sys\n"
        "from plaudit.cli.main import main\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    said = io.StringIO()\n"
        "    with contextlib.redirect_stderr(said):\n"
        "        print(main(command), 'torch' in sys.modules, said.getvalue().strip())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands)
    for line in lines:
        assert re.match(r"2 False plaudit: /no/such/model(\.jsonl)?: (there is )?no such (folder|file)", line)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


PLACES = ["/proc/x", "/dev/null/x", "file/x", "x" * 300, "loop/x"]
OUT_COMMANDS = [
    ("train", "sft", "--model", ".", "--data", "file", "--out", "{}"),
    ("data", "convert", "rows.jsonl", "{}/rows.jsonl"),
    ("run", "--out", "{}"),
    ("world", "make", "prompts", "--n", "3", "--out", "{}/rows.jsonl"),
    ("train", "sft", "--data", "rows.jsonl", "--out", "run", "--model", "{}"),
    ("train", "sft", "--config", "{}"),
    ("data", "inspect", "{}"),
    ("report", "{}"),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("words", OUT_COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_place_that_the_system_refuses_is_a_sentence(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Hi"}\n')
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    for place in PLACES:
        assert main([word.format(place) for word in words]) in (1, 2)
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert said.startswith("plaudit: "), place
        assert place[:40] in said


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"
        ),
    ],
)
def test_a_full_memory_is_a_sentence_that_names_what_helps(tmp_path, monkeypatch, capsys, error):
    from plaudit.cli import sample

    def full(*_: object) -> int:
        raise error

    monkeypatch.setattr(sample, "run", full)
    assert main(["sample", "--model", str(tmp_path), "--prompt", "Hello"]) == 2
    told = capsys.readouterr().err
    assert "too little memory" in told
    assert str(error).partition(". ")[0] in told
    assert "plaudit plan" in told
    assert "Traceback" not in told


def test_a_fault_of_the_users_is_a_message_and_not_a_traceback(tmp_path):
    done = run("data", "inspect", tmp_path / "rows.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("plaudit: ")
    assert "rows.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cases(quick=("words0-",))
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        ("data", "inspect", "{rows}"),
        ("plan", "sft", "--model", "{model}", "--data", "{rows}", "--no-measure"),
    ],
)
def test_a_reader_that_leaves_ends_the_command_quietly(words, unbuffered, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "2 + 2 =", "completion": " 4"}) + "\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PLAUDIT, *(word.format(rows=rows, model=SHIPPED_MODEL_FOLDER) for word in words)],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(writer)
    # What is under way may be said; that nobody reads is no fault to tell of.
    told = [line for line in done.stderr.decode().splitlines() if not line.endswith("…")]
    assert (done.returncode, told) == (141, [])


def test_ctrl_c_is_a_word_and_130():
    script = (
        "import os, signal, sys\n"
        # A shell's background jobs ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from plaudit.cli import data\n"
        "from plaudit.cli.main import main\n"
        "sys.settrace(lambda frame, event, _: os.kill(os.getpid(), signal.SIGINT)\n"
        "    if frame.f_code is data.run.__code__ else None)\n"
        "sys.exit(main(['data', 'inspect', 'rows.jsonl']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "plaudit: stopped\n")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("dpo --lr 1", "--lr: here it is --learning-rate, the peak learning rate"),
        ("sft --beta 1", "--beta: --beta of other methods, how strongly a policy is held near its reference"),
        ("dpo --load-in-4bit", "--load-in-4bit: here it is --lora.base, 4bit with --lora.rank 16"),
        ("dpo --load-in-8bit", "--load-in-8bit: weights of 8 bits are not supported"),
        ("dpo --num-train-epochs 1", "--num-train-epochs: here it is --epochs"),
        ("grpo --num_train_epochs 1", "--num_train_epochs: here it is --epochs"),
        ("dpo --per-device-train-batch-size 1", "here it is --batch-size, the rows of a whole step"),
        ("dpo --gradient_accumulation_steps 1", "here it is --batch-size, the rows of a whole step"),
        ("dpo --use-peft", "--use-peft: here it is --lora.rank"),
        ("dpo --lora_r 8", "--lora_r: here it is --lora.rank"),
        ("sft --lora_dropout 0.05", "--lora_dropout: here it is --lora.dropout"),
        ("dpo --report-to wandb", "--report-to: here it is --sinks"),
        ("dpo --deepspeed x", "--deepspeed: here it is --shard"),
        ("dpo --bf16", "--bf16: here it is --dtype"),
        ("dpo --max-seq-length 1", "--max-seq-length: here it is --max-length"),
        ("grpo --data x", "--data: here it is --prompts, the rows whose prompts are asked"),
        ("dpo --prompts x", "--prompts: here it is --data, a file, or org/name"),
        ("dpo --learning_rate 1", "unknown option --learning_rate; did you mean --learning-rate?"),
    ],
)
def test_what_other_projects_call_an_option_is_answered_with_its_name_here(words, answer, capsys):
    assert main(["train", *words.split()]) == 2
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("sample --model . --prompts x", "--prompts: here it is --data, a file"),
        ("eval policy --model x", "--model: models stand here without an option"),
        (
            "run --set dpo.beta=1 grpo.rounds=2",
            "--set takes one setting; write --set grpo.rounds=2 for the next",
        ),
        ("run --set a.b=1 c.d=2 e.f=3", "--set takes one setting; write --set c.d=2 for the next"),
        (
            "data inspect https://host/rows.jsonl",
            "https://host/rows.jsonl: addresses are not read; fetch the file",
        ),
        ("sample --prompt x --model https://host/a", "https://host/a: addresses are not read"),
        (
            "train dpo --model . --data rws.jsonl --out run",
            "rws.jsonl: there is no such file; did you mean rows.jsonl?",
        ),
        (
            "train dpo --model https://huggingface.co/org/base --data rows.jsonl --out run",
            "https://huggingface.co/org/base: addresses are not read; write org/base",
        ),
        (
            "train dpo --model . --data https://huggingface.co/datasets/org/pairs --out run",
            "addresses are not read; write org/pairs",
        ),
    ],
)
def test_what_is_given_in_another_way_is_answered_with_how(words, answer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    assert main(words.split()) == 2
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("train", "dpo", "--model", ".", "--out", "run", "--data", ""),
        ("train", "dpo", "--model", ".", "--data", "rows.jsonl", "--out", ""),
        ("data", "inspect", ""),
        ("data", "convert", "rows.jsonl", ""),
    ],
    ids=lambda words: f"{words[1]}-{words[-2]}",
)
def test_a_variable_that_was_never_set_is_not_the_present_folder(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == 2
    assert re.search(r"expected (a path|rows), got ''", capsys.readouterr().err)


def test_every_option_that_stands_for_another_projects_word_exists():
    known = {setting.option for config in config_types().values() for setting in all_settings(config)}
    entries = yaml.safe_load((ROOT / "src/plaudit/peer_words.yaml").read_text("utf-8"))
    named = {option for entry in entries for option in entry["here"]}
    in_sentences = {option for entry in entries for option in re.findall(r"--[a-z][\w.-]*\w", entry["means"])}
    others = {"--max-tokens", "--temperature", "--list", "--help-all", "--nproc-per-node", "--machine-memory"}
    assert named | in_sentences <= known | others
    words = [word for entry in entries for word in entry["words"]]
    assert len(words) == len(set(words))


def test_a_method_in_place_of_a_verb_is_answered_with_the_command(capsys):
    assert main(["dpo", "--model", "x"]) == 2
    assert "dpo is a way to train: plaudit train dpo" in capsys.readouterr().err
