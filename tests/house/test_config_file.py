"""A config in a YAML file: what is refused, and that what is written reads back the same."""

import string
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from plaudit.cli.main import main
from plaudit.config import read_values, read_yaml, resolve, to_yaml
from plaudit.errors import UserError
from plaudit.methods.registry import config_type
from tests.house.example_config import Lora, Optimizer, RunConfig

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t"), min_size=1
)
PATHS = st.text(string.ascii_letters + string.digits + "/._- é:#'", min_size=1).map(Path)
NUMBERS = st.floats(allow_nan=False)


def from_text(text: str, folder: Path) -> RunConfig:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return resolve(RunConfig, read_yaml(file, RunConfig), {})


@given(
    config=st.builds(
        RunConfig,
        model=PATHS,
        out=PATHS,
        learning_rate=NUMBERS,
        max_steps=st.none() | st.integers(),
        schedule=st.sampled_from(["constant", "linear", "cosine"]),
        shuffle=st.booleans(),
        name=st.none() | TEXTS,
        weights=st.lists(NUMBERS).map(tuple),
        optimizer=st.builds(Optimizer, beta2=st.floats(0, 1, exclude_max=True), nesterov=st.booleans()),
        lora=st.none() | st.builds(Lora, rank=st.integers(), targets=st.lists(TEXTS).map(tuple)),
    )
)
def test_a_config_survives_the_way_through_a_file(config, tmp_path_factory):
    assert from_text(to_yaml(config), tmp_path_factory.mktemp("config")) == config


def test_what_a_file_does_not_name_keeps_its_default_an_empty_group_too_and_1e_4_is_a_number(tmp_path):
    config = from_text("model: base\nout: a\noptimizer:\n  nesterov: true\n", tmp_path)
    assert config == RunConfig(
        model=Path("base"), out=Path("a"), optimizer=Optimizer(beta2=0.9, nesterov=True)
    )
    assert from_text("model: base\nout: a\nlora: {}\n", tmp_path).lora == Lora()
    assert from_text("model: base\nout: a\nlearning_rate: 1e-4\n", tmp_path).learning_rate == 1e-4


def test_adapters_learn_at_ten_times_the_rate_where_none_is_given(tmp_path):
    words = [("dpo", {}, 1e-6), ("dpo", {"lora": {"rank": 8}}, 1e-5), ("sft", {"lora": {"rank": 8}}, 1e-4)]
    for method, more, rate in [*words, ("sft", {"lora": {"rank": 8}, "learning_rate": 3e-5}, 3e-5)]:
        kind = config_type(method)
        given = read_values({"model": "m", "data": "d", "out": "o", **more}, kind, "here")
        assert resolve(kind, given, {}).learning_rate == pytest.approx(rate)


LAUGHS = "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghijk"))
"""Ten lines that are four thousand million values."""


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lerning_rate: 1", "unknown key lerning_rate; did you mean learning_rate?"),
        ("learning-rate: 1", "unknown key learning-rate; did you mean learning_rate?"),
        ("optimiser:\n  beta2: 0.9", "unknown key optimiser; did you mean optimizer?"),
        ("beta2: 0.9", "unknown key beta2; did you mean optimizer.beta2?"),
        ("optimizer:\n  beta_2: 0.9", "unknown key optimizer.beta_2; did you mean optimizer.beta2?"),
        ("zzzzzz: 1", "unknown key zzzzzz"),
        ("on: 1", "unknown key True"),
        ("max_steps: ten", "max_steps: expected a whole number or none, got 'ten'"),
        ("max_steps: 1.5", "max_steps: expected a whole number or none, got 1.5"),
        ("max_steps: true", "max_steps: expected a whole number or none, got True"),
        ("learning_rate: high", "learning_rate: expected a number, got 'high'"),
        ("learning_rate: .nan", "learning_rate: expected a number, got nan"),
        ("learning_rate:", "learning_rate: expected a number, got None"),
        ("shuffle: 1", "shuffle: expected true or false, got 1"),
        ("schedule: cosin", "expected one of constant, linear, cosine, got 'cosin'; did you mean cosine?"),
        ("name: 12", "name: expected text or none, got 12; in YAML, text that looks like a number stands"),
        ("name: no", "name: expected text or none, got False; in YAML, yes, no, on and off are"),
        ("weights: 1", "weights: expected a list, each a number, got 1"),
        ("weights: [1, x]", "weights: expected a list, each a number, got [1, 'x']"),
        ("out: ''", "out: expected a path, got ''"),
        ("optimizer: 3", "optimizer: expected settings (name: value), got 3"),
        ("optimizer:", "optimizer: expected settings (name: value), got None"),
        ("optimizer:\n  beta2: high", "optimizer.beta2: expected a number, got 'high'"),
        ("max_steps: 1\nmax_steps: 2", ":2: max_steps is set twice; keep one of the two"),
        ("lora:\n  rank: 1\n  rank: 2", ":3: rank is set twice"),
        (
            "name: [",
            "this is not YAML: while parsing a flow node expected the node content, but found '<stream ",
        ),
        ("a: b\n c: d", "not YAML: mapping values are not allowed here at line 2, column 3"),
        ("name: !!python/object:os.system x", "this is not YAML: could not determine a constructor"),
        ("name: &a [*a]", ":1: this value holds itself by an alias (*name); write it out"),
        ("optimizer: &a {beta2: *a}", ":1: this value holds itself by an alias"),
        ("a: &a [x, x]\n" + LAUGHS, ": more than 100,000 values, most of them by aliases (*name)"),
        ("name: " + "[" * 5000 + "]" * 5000, "this is not YAML of settings: hundreds of levels in each"),
        ("max_steps: 2026-99-99", "this is not YAML: month must be in 1..12"),
        ("max_steps: " + "9" * 5000, "this is not YAML: Exceeds the limit"),
        ("- model", "expected settings (name: value), got ['model']"),
    ],
)
def test_a_wrong_line_names_the_file_the_key_and_what_was_expected(line, message, tmp_path):
    with pytest.raises(UserError) as raised:
        from_text(line + "\n", tmp_path)
    assert str(raised.value).startswith(str(tmp_path / "config.yaml"))
    assert message in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.yaml: the config cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml", RunConfig)
    with pytest.raises(UserError, match="Is a directory"):
        read_yaml(tmp_path, RunConfig)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\n")
    with pytest.raises(UserError, match=r"binary\.yaml: the config is not UTF-8 text \(byte 6\)"):
        read_yaml(binary, RunConfig)


def test_an_empty_file_sets_nothing_and_a_byte_order_mark_is_no_key(tmp_path):
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n")
    assert read_yaml(empty, RunConfig) == {}
    marked = tmp_path / "marked.yaml"
    marked.write_text("name: a\n", encoding="utf-8-sig")
    assert read_yaml(marked, RunConfig) == {("name",): "a"}


def test_what_other_projects_call_a_setting_is_answered_with_its_name_here(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    for word, answer in {
        "lr": "here it is learning_rate, the peak learning rate",
        "per_device_train_batch_size": "here it is batch_size, the rows of a whole step over all processes",
        "load_in_4bit": "here it is lora.base, 4bit with lora.rank 16",
        "load_in_8bit": "weights of 8 bits are not supported; lora.rank 16 lora.base 4bit",
        "num_train_epochs": "here it is epochs",
        "deepspeed": "here it is shard, with torchrun",
    }.items():
        path.write_text(f"{word}: 1\n")
        assert main(["train", "dpo", "--config", str(path)]) == 2
        said = capsys.readouterr().err
        assert f"{path}: " in said
        assert f"{word}: " in said
        assert answer in said
