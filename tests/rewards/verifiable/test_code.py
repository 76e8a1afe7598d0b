"""Unit tests as a reward: what passes, what fails, and every way to pass without solving that we know of."""

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.rewards.base import Reward, refusal_counts
from plaudit.rewards.sandbox.sandbox import SandboxError, SandboxLimits
from plaudit.rewards.verifiable.code import (
    NO_TESTS,
    CodeReward,
    InputOutputTest,
    extract_program,
    parse_unit_tests,
)
from tests.rewards.asked import asked
from tests.rewards.sandbox.confined import SHORT, sandbox

QUICK = SandboxLimits(cpu_seconds=1, wall_seconds=4, memory_mb=256, output_kb=64)
ADD = "def add(a, b): return a + b"
TESTS = ["assert add(2, 3) == 5", "assert add('a', 'b') == 'ab'", "assert add([1], [2]) == [1, 2]"]


def pieces(name: str) -> list[list[str]]:
    """The entries of a file beside this one: between double lines, their parts between single ones."""
    text = (Path(__file__).parent / name).read_text()
    return [[part.strip("\n") for part in one.split("-----\n")] for one in text.split("=====\n")]


def with_tests(tests: object, *answers: str) -> Task:
    return asked(*answers, facts={"tests": tests})


def score(code: str, tests: object, limits: SandboxLimits = SHORT) -> float | None:
    task = with_tests(tests, code)
    return CodeReward(sandbox=sandbox(limits), workers=1).scores([task])[0][0]


@pytest.mark.slow
def test_the_tests_decide() -> None:
    assert score(ADD, TESTS) == 1.0
    assert score(f"Here it is:\n```python\n{ADD}\n```\nIt adds.", TESTS) == 1.0
    assert score("def add(a, b): return a - b", TESTS) == 0.0
    assert score("def sub(a, b): return a + b", TESTS) == 0.0
    assert score("I cannot do this.", TESTS) == 0.0
    assert score("def add(a, b: return", TESTS) == 0.0
    assert score("", TESTS) == 0.0


def test_many_answers_at_once_keep_their_places() -> None:
    twice = [{"input": "4", "output": "8"}]
    tasks = [
        with_tests(TESTS, ADD, "def add(a, b): return 5"),
        asked(*(ADD,) * 8),
        with_tests(twice, "1/0", "print(int(input()) * 2)"),
    ]
    reward = CodeReward(sandbox=sandbox(), workers=3)
    assert isinstance(reward, Reward)
    assert reward.scores(tasks) == ((1.0, 0.0), (None,) * 8, (0.0, 1.0))
    assert refusal_counts(reward) == {NO_TESTS: 8}
    assert reward.scores([]) == ()


@pytest.mark.slow
def test_programs_are_run_on_their_input() -> None:
    code = "n = int(input())\nfor k in range(n): print(k, ' ')"
    assert score(code, [{"input": "2\n", "output": "0\n1\n"}, {"input": "0", "output": ""}]) == 1.0
    assert score(code, [{"input": "2\n", "output": "0\n2\n"}]) == 0.0
    assert score("print(8); raise SystemExit(1)", [{"input": "", "output": "8"}]) == 0.0
    assert score("if __name__ == '__main__': print(8)", [{"input": "", "output": "8"}]) == 1.0
    assert score("while True: pass", [{"input": "", "output": "8"}], QUICK) == 0.0
    record = "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: 'int'\nprint(P(8))"
    assert score(record, [{"input": "", "output": "P(x=8)"}]) == 1.0


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("code", "tests"), [(one, rest) for one, *rest in pieces("programs.txt")])
def test_right_programs_pass_and_wrong_ones_fail(code: str, tests: list[str]) -> None:
    right, wrong = ast.literal_eval(tests.pop().removeprefix("wrong "))
    assert score(code, tests) == 1.0
    assert score(code.replace(right, wrong), tests) == 0.0


FORGERIES = [code for (code,) in pieces("forgeries.txt")]
"""Ways to pass without solving, each a program."""


@pytest.mark.one_in(9)
@pytest.mark.parametrize("code", FORGERIES)
def test_nothing_passes_without_solving(code: str) -> None:
    assert score(code, ["assert add(2, 3) == 5"], QUICK) == 0.0


def test_a_test_that_is_about_nearness_is_not_fooled() -> None:
    tests = ["assert abs(add(2, 3) - 5) < 1e-6"]
    assert score(ADD, tests) == 1.0
    assert score(FORGERIES[-1], tests) == 0.0
    assert score("def abs(x): return 0\ndef add(a, b): return 0", tests) == 0.0
    assert score("def add(a, b): return float('nan')", tests) == 0.0


def test_a_module_that_tests_rely_on_is_pythons_own() -> None:
    tests = ["assert math.isclose(add(2, 3), 5)"]
    assert score(f"import math\n{ADD}", tests) == 1.0
    forged = "class math:\n  isclose = staticmethod(lambda *a: True)\ndef add(a, b): return 0"
    assert score(forged, tests) == 0.0
    assert score("import math\nmath.isclose = lambda *a: True\ndef add(a, b): return 0", tests) == 0.0


def test_a_dead_program_does_not_pass_where_tests_expect_an_error() -> None:
    tests = ["try:\n  f(-1)\nexcept Exception:\n  pass\nelse:\n  assert False", "x = 1"]
    assert score("def f(x): raise ValueError", tests) == 1.0
    assert score("import os\ndef f(x): os._exit(0)", tests) == 0.0
    hidden = ["try:\n  f(-1)\nexcept BaseException:\n  pass", "x = 1"]
    assert score("import os\ndef f(x): os._exit(0)", hidden) == 0.0


@pytest.mark.slow
def test_what_the_tests_give_does_not_lead_to_the_tests() -> None:
    given = "def g(x): return x + 1\nclass N:\n  v = 3\n  def m(self): return 7"
    tests = [given, "assert f(g, N()) == (2, 3, 7)"]
    assert score("def f(g, n): return (g(1), n.v, n.m())", tests) == 1.0
    assert score("def f(g, n): return (2, 3, 7)", tests) == 1.0
    for reach in ("g.__globals__", "g.__code__", "g.x", "n.m.__func__", "n.m.__self__", "n._x"):
        assert score(f"def f(g, n):\n  {reach}\n  return (2, 3, 7)", tests) == 0.0, reach


def test_a_program_that_speaks_the_language_of_the_line_reaches_nothing() -> None:
    spy = """
import gc
from plaudit.rewards.sandbox.peer import Peer
def f(g):
    peer = next(o for o in gc.get_objects() if type(o) is Peer)
    found = []
    for do, given in [
        ("getattr", (g, "__globals__")), ("getattr", (g, "__code__")), ("setattr", (g, "x", 1)),
        ("call", (vars,)), ("call", (globals,)), ("call", (type, g)), ("call", (print,)),
        ("data", (g,)), ("load", ()), ("global", ("tests",)), ("nothing", (g,)), ("getattr", ("", "format")),
    ]:
        try:
            found.append((do, peer.request(do, *given)))
        except Exception:
            continue
    return found
"""
    assert score(spy, ["def g(x): return x\nassert f(g) == []"]) == 1.0


@pytest.mark.parametrize("said", [None, "", [], "[]", ["assert add(2, 3 == 5"]])
def test_without_tests_that_are_python_there_is_no_verdict(said: object) -> None:
    assert score(ADD, said) is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("test", "lacks"),
    [
        ("assert np.allclose(add(2, 3), 5)", "need np"),
        ("import numpy as np\nassert np.allclose(add(2, 3), 5)", "need numpy"),
        ("from solution import add\nassert add(2, 3) == 5", "need solution"),
        ("with pytest.raises(ValueError): add(2, 3)", "need pytest"),
        ("assert 2 + 3 == 5", "nothing that an answer could define"),
        ("import math\nassert math.sqrt(4) == 2", "nothing that an answer could define"),
    ],
)
def test_tests_that_no_answer_could_pass_give_no_verdict(test: str, lacks: str) -> None:
    forged = "class np: allclose = staticmethod(lambda *a: True)\npytest = np\ndef add(a, b): return np"
    reward = CodeReward(sandbox=sandbox(), workers=1)
    assert reward.scores([with_tests([test], ADD, forged)]) == ((None, None),)
    assert lacks in next(iter(refusal_counts(reward)))


def test_a_class_that_is_its_own_judge_has_no_verdict() -> None:
    tests = ["assert abs(V(2) - 1.41) < 1e-6 and V(2) == 3", "assert V(3) == V(4)"]
    judge = (
        "class V:\n  def __init__(s, n): s.n = n\n  __eq__ = lambda s, o: True\n  __sub__ = lambda s, o: s\n"
    )
    reward = CodeReward(sandbox=sandbox(), workers=1)
    assert reward.scores([with_tests([test], judge) for test in tests]) == ((None,), (None,))
    assert all("object" in reason for reason in refusal_counts(reward))


def test_a_sandbox_that_fails_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sandbox()

    def fail(*_: object) -> None:
        raise SandboxError("no room")

    monkeypatch.setattr(here, "run_tests", fail)
    reward = CodeReward(sandbox=here)
    assert reward.scores([with_tests(TESTS, ADD, "x")]) == ((None, None),)
    assert refusal_counts(reward) == {"no room": 2}


def test_tests_come_in_several_forms() -> None:
    assert parse_unit_tests("assert f(1) == 2") == ("assert f(1) == 2",)
    assert parse_unit_tests(json.dumps(["assert 1", "assert 2"])) == ("assert 1", "assert 2")
    assert parse_unit_tests({"input": 1, "output": 2}) == (InputOutputTest(stdin="1", expected_stdout="2"),)
    wrong: list[Any] = [3, [3], [{"input": "1"}], ["assert 1", {"input": "", "output": ""}]]
    for said in wrong:
        with pytest.raises(UserError, match="expected a list"):
            parse_unit_tests(said)


def test_the_last_block_of_python_is_the_program() -> None:
    text = "```py\nold\n```\n```bash\nls\n```\n```\nnew\n```\n```text\n5\n```"
    assert extract_program(text) == "new\n"
    assert extract_program("x = 1") == "x = 1"
    assert extract_program("```python\nnot closed") == "```python\nnot closed"


@pytest.mark.parametrize("answer", ["```" + " " * 300_000, "```" + "a" * 300_000, "```\n" * 100_000])
def test_a_fence_that_never_ends_costs_a_moment(answer: str) -> None:
    begun = time.perf_counter()
    extract_program(answer)
    assert time.perf_counter() - begun < 2


def test_workers_are_counted() -> None:
    with pytest.raises(UserError, match="at once"):
        CodeReward(sandbox=sandbox(), workers=0)
