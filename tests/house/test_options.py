"""Command-line options from a config class."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plaudit.cli.parser import Parser, add_options, read_config
from plaudit.config import to_yaml
from plaudit.errors import UserError
from tests.house.example_config import Lora, Optimizer, RunConfig

NEEDED = ("--model", "base", "--out", "runs/a")


def parser_of(config_type: type) -> Parser:
    parser = Parser(prog="plaudit train")
    add_options(parser, config_type)
    return parser


def read(*words: str) -> RunConfig:
    return read_config(RunConfig, parser_of(RunConfig).parse_args(words))


def test_without_options_the_defaults_of_the_class_hold_and_those_that_a_parent_gives():
    assert read(*NEEDED) == RunConfig(model=Path("base"), out=Path("runs/a"))
    assert read(*NEEDED).optimizer.beta2 == 0.9
    assert read(*NEEDED, "--optimizer.nesterov").optimizer == Optimizer(beta2=0.9, nesterov=True)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (("--learning-rate", "3e-4"), "learning_rate", 3e-4),
        (("--learning-rate", "-1e-4"), "learning_rate", -1e-4),
        (("--max-steps", "7"), "max_steps", 7),
        (("--max-steps", "none"), "max_steps", None),
        (("--schedule", "linear"), "schedule", "linear"),
        (("--no-shuffle",), "shuffle", False),
        (("--shuffle",), "shuffle", True),
        (("--name", "a run"), "name", "a run"),
        (("--name", "12"), "name", "12"),
        (("--name", "none"), "name", None),
        (("--weights", "1", "0.5"), "weights", (1.0, 0.5)),
        (("--optimizer.beta2", "0.99"), "optimizer", Optimizer(beta2=0.99)),
        (("--lora",), "lora", Lora()),
        (("--lora.rank", "4"), "lora", Lora(rank=4)),
        (("--lora", "--lora.targets", "o"), "lora", Lora(targets=("o",))),
        (("--no-lora",), "lora", None),
    ],
)
def test_an_option_sets_its_field(words, name, value):
    assert getattr(read(*NEEDED, *words), name) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-steps", "ten"), "argument --max-steps: expected a whole number or none, got 'ten'"),
        (("--max-steps", "1.5"), "argument --max-steps: expected a whole number or none, got '1.5'"),
        (("--learning-rate", "nan"), "argument --learning-rate: expected a number, got 'nan'"),
        (("--weights", "1", "x"), "argument --weights: expected a number, got 'x'"),
        (("--model", ""), "argument --model: expected a path, got ''"),
        (("--schedule", "cosin"), "one of constant, linear, cosine, got 'cosin'; did you mean cosine?"),
        (("--lerning-rate", "1"), "unknown option --lerning-rate; did you mean --learning-rate?"),
        (("--learning_rate", "1"), "unknown option --learning_rate; did you mean --learning-rate?"),
        (("--beta2", "1"), "unknown option --beta2; did you mean --optimizer.beta2?"),
        (("--learning", "1"), "unknown option --learning; did you mean --learning-rate?"),
        (("--optimizer.beta2", "1"), "beta2 is 1.0; it must lie in [0, 1)"),
        (("--no-lora", "--lora.rank", "4"), "--no-lora turns off what --lora.rank sets"),
    ],
)
def test_a_wrong_option_says_what_was_expected(words, message):
    with pytest.raises(UserError) as raised:
        read(*NEEDED, *words)
    assert message in str(raised.value)


@pytest.mark.parametrize(("words", "names"), [((), "--model, --out;"), (("--out", "a"), "missing: --model;")])
def test_every_missing_setting_is_named(words, names):
    with pytest.raises(UserError, match="missing: ") as raised:
        read(*words)
    assert names in str(raised.value)


def help_of(capsys: pytest.CaptureFixture[str], option: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        read(option)
    assert stopped.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_is_the_docstring_and_the_default(capsys):
    shown = help_of(capsys, "--help")
    assert "--model PATH The folder of the base model. (required)" in shown
    assert "--learning-rate NUMBER The peak of the schedule. (default: 1e-05)" in shown
    assert "--max-steps INT Where to stop; none is at the end of the data. (default: none)" in shown
    assert "--shuffle, --no-shuffle Whether rows are drawn in a random order. (default: on)" in shown
    assert "--lora, --no-lora Train adapters instead of the whole model. (default: off)" in shown


def test_nested_settings_are_shown_by_help_all_only(capsys):
    nested = "--optimizer.beta2 NUMBER How slowly the squared gradient is averaged, from 0 to 1 (100 %)."
    assert "--optimizer" not in help_of(capsys, "--help")
    everything = help_of(capsys, "--help-all")
    assert f"{nested} (default: 0.9)" in everything
    assert "--lora.targets TEXT [TEXT ...] Which matrices get one. (default: q v)" in everything


def test_print_config_prints_a_config_that_reads_back_and_ends(capsys, tmp_path):
    words = (*NEEDED, "--lora.rank", "4", "--weights", "1", "2", "--max-steps", "5")
    with pytest.raises(SystemExit) as stopped:
        read(*words, "--print-config")
    assert stopped.value.code == 0
    file = tmp_path / "config.yaml"
    file.write_text(capsys.readouterr().out)
    assert read("--config", str(file)) == read(*words)


def test_print_config_complains_like_the_run_would():
    with pytest.raises(UserError, match="missing: --model, --out"):
        read("--print-config")


def test_the_command_line_beats_the_file_and_the_file_the_default(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: base\nout: a\nmax_steps: 5\nlora:\n  rank: 8\n  targets: [o]\n")
    config = read("--config", str(file), "--out", "b", "--lora.rank", "4")
    assert config == RunConfig(
        model=Path("base"), out=Path("b"), max_steps=5, lora=Lora(rank=4, targets=("o",))
    )
    assert read("--config", str(file), "--no-lora").lora is None


def test_a_setting_on_the_command_line_turns_on_a_group_that_the_file_turns_off(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: base\nout: a\nlora: null\n")
    assert read("--config", str(file)).lora is None
    assert read("--config", str(file), "--lora.rank", "4").lora == Lora(rank=4)


def test_a_file_may_be_named_by_the_verb_itself(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: base\nout: a\n")
    args = parser_of(RunConfig).parse_args([])
    assert read_config(RunConfig, args, file) == RunConfig(model=Path("base"), out=Path("a"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Undocumented:
    """Lacks a docstring."""

    knob: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """Has a field that no option can set."""

    knob: dict[str, int] = field(default_factory=dict[str, int])
    """A mapping."""


def test_a_setting_that_cannot_be_an_option_fails_when_the_parser_is_built():
    with pytest.raises(TypeError, match=r"Undocumented\.knob needs a docstring"):
        parser_of(Undocumented)
    with pytest.raises(TypeError, match=r"cannot be of type dict\[str, int\]"):
        parser_of(Unsupported)


def test_options_of_a_class_inside_a_function():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Local:
        """Local."""

        size: int = 1
        """How large."""

    assert to_yaml(read_config(Local, parser_of(Local).parse_args(["--size", "3"]))) == "size: 3\n"
