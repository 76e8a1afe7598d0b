"""Programs that pass by what they say of themselves, in every form that tests have: each is wrong.

A form is a row's tests with an honest program, which passes. Against each stand programs that solve nothing:
their objects lie by all operators, remember what these are given, and answer with it the next time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from plaudit.rewards.sandbox.sandbox import SandboxLimits
from tests.rewards.verifiable.test_code import score

LIMITS = SandboxLimits(cpu_seconds=2, wall_seconds=6, memory_mb=256, output_kb=64)

LIAR = """
SEEN = []
def lie(zero):
    def operation(self, *given):
        SEEN.extend(one for one in given if type(one) in (int, float, str, list, set, tuple, dict))
        return zero() if callable(zero) else zero
    return operation
PAIRS = 'add sub mul truediv floordiv mod pow divmod matmul and or xor lshift rshift'.split()
def liar(base, *made, zero=0.0):
    class Liar(base):
        pass
    for name in PAIRS:
        setattr(Liar, f'__{name}__', lie(zero))
        setattr(Liar, f'__r{name}__', lie(zero))
    for name in 'neg pos abs invert round trunc floor ceil'.split():
        setattr(Liar, f'__{name}__', lie(zero))
    for name in 'eq le lt ge gt contains'.split():
        setattr(Liar, f'__{name}__', lie(True))
    Liar.__ne__ = lie(False)
    for name in 'issubset issuperset isdisjoint startswith endswith equals is_integer union'.split():
        setattr(Liar, name, lie(True))
    for name in 'symmetric_difference difference intersection'.split():
        setattr(Liar, name, lie(set))
    for name in 'count index total_seconds days find'.split():
        setattr(Liar, name, lie(0))
    Liar.__hash__ = lambda self: 0
    Liar.__len__ = Liar.__bool__ = Liar.__int__ = Liar.__index__ = lambda self: 0
    Liar.__float__ = lambda self: 0.0
    Liar.__format__ = Liar.__str__ = Liar.__repr__ = lambda self, *_: '0'
    Liar.__iter__ = lambda self: iter([])
    Liar.__enter__ = lambda self: self
    Liar.__exit__ = lambda self, *given: bool(SEEN.append(str(given[1])) or True)
    return Liar(*made)
"""
OBJECT = f"{LIAR}\ndef f(*a): return liar(object)"
OBJECTS = f"{LIAR}\nzero = lambda: liar(object, zero=zero)\ndef f(*a): return zero()"
FLOAT = f"{LIAR}\ndef f(*a): return liar(float, 0.0)"
INT = f"{LIAR}\ndef f(*a): return liar(int, 0, zero=0)"
TEXT = f"{LIAR}\ndef f(*a): return liar(str, '')"
LIST = f"{LIAR}\ndef f(*a): return liar(list, [])"
TUPLE = f"{LIAR}\ndef f(*a): return liar(tuple, ())"
SET = f"{LIAR}\ndef f(*a): return liar(set, [], zero=set)"
DICT = f"{LIAR}\ndef f(*a): return liar(dict, {{}})"
LIARS = f"{LIAR}\ndef f(*a): return [liar(float, 0.0), liar(object), liar(int, 0)]"
LEARNT = f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(object)"
LEARNT_FLOAT = f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(float, 1.4)"
LEARNT_INT = f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(int, 0, zero=0)"
LEARNT_CLASS = f"{LIAR}\nclass f:\n  def __new__(cls, *a): return SEEN[-1] if SEEN else liar(object)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Tests of one kind, the program that solves them, and those that only claim to."""

    tests: tuple[str, ...]
    honest: str
    forged: tuple[str, ...]


ROOT = "def f(x): return x ** 0.5"
LIST_OF_ROOTS = "def f(n): return [k ** 0.5 for k in range(1, n + 1)]"
FORMS = {
    "near": Form(
        tests=("assert abs(f(2) - 1.41421356) < 1e-6",),
        honest=ROOT,
        forged=(OBJECT, OBJECTS, FLOAT, INT, TEXT, LIST, TUPLE, SET, DICT, LIARS, LEARNT),
    ),
    "near, reflected": Form(
        tests=("assert abs(1.41421356 - f(2)) <= 1e-6",),
        honest=ROOT,
        forged=(OBJECT, OBJECTS, FLOAT, INT),
    ),
    "a tolerance as a bound": Form(
        tests=("assert 1e-6 > abs(f(2) - 1.41421356)", "assert not abs(f(2) - 1.41421356) > 1e-6"),
        honest=ROOT,
        forged=(OBJECT, OBJECTS, FLOAT),
    ),
    "first near, then exact": Form(
        tests=("assert abs(f(2) - 1.4) < 0.1", "assert f(2) == 1.4"),
        honest="def f(x): return 1.4",
        forged=(LEARNT, LEARNT_CLASS, f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(float, 1.45)"),
    ),
    "what is not believed is not told either": Form(
        tests=("assert abs(f(2) - 1.414) < 9", "assert f(3) == 1.414"),
        honest="def f(x): return 1.414",
        forged=(LEARNT_FLOAT, LEARNT_INT),
    ),
    "an error that is caught": Form(
        tests=(
            "try:\n  close = abs(f(2) - 1.5) < 9\nexcept TypeError:\n  close = None",
            "assert f(2) == 1.5",
        ),
        honest="def f(x): return 1.5",
        forged=(LEARNT, LEARNT_FLOAT, LEARNT_CLASS),
    ),
    "humaneval": Form(
        tests=(
            "METADATA = {'author': 'x'}\n\ndef check(candidate):\n"
            "    assert candidate(3.5) == 0.5\n"
            "    assert abs(candidate(1.33) - 0.33) < 1e-6\n"
            "    assert abs(candidate(123.456) - 0.456) < 1e-6",
            "check(f)",
        ),
        honest="def f(x): return x % 1.0",
        forged=(OBJECT, FLOAT, f"{LIAR}\ndef f(x): return 0.5 if x == 3.5 else liar(object)", LEARNT),
    ),
    "isclose": Form(
        tests=("import math", "assert math.isclose(f(2), 1.41421356, rel_tol=1e-6)"),
        honest=ROOT,
        forged=(OBJECT, FLOAT, f"import math\nmath.isclose = lambda *a, **k: True\n{OBJECT}"),
    ),
    "round": Form(tests=("assert round(f(2), 3) == 1.414",), honest=ROOT, forged=(OBJECT, FLOAT, INT)),
    "zip": Form(
        tests=("assert all(abs(a - b) < 1e-6 for a, b in zip(f(3), [1, 1.41421356, 1.73205081]))",),
        honest=LIST_OF_ROOTS,
        forged=(
            LIARS,
            f"{LIAR}\ndef f(n):\n  for _ in range(n): yield liar(float, 0.0)",
            f"{LIAR}\ndef f(n):\n  yield 1\n  while True: yield SEEN[-1] if SEEN else liar(object)",
        ),
    ),
    "set": Form(
        tests=("assert set(f(3)) == {1, 2, 3}", "assert not set(f(3)) ^ {1, 2, 3}"),
        honest="def f(n): return [*range(1, n + 1)]",
        forged=(LIARS, SET, LIST, OBJECT),
    ),
    "a set of its own": Form(
        tests=("assert not f(3) ^ {1, 2, 3}",),
        honest="def f(n): return {*range(1, n + 1)}",
        forged=(OBJECT, SET, f"{LIAR}\ndef f(n): return liar(frozenset, zero=set)"),
    ),
    "set, by its methods": Form(
        tests=("assert not f(3).symmetric_difference({1, 2, 3})",),
        honest="class S(set): pass\ndef f(n): return S(range(1, n + 1))",
        forged=(OBJECT, SET, INT, TUPLE),
    ),
    "set, by what is in both": Form(
        tests=("assert not f(3).intersection({4}) and f(3).union({1}) == {1, 2, 3}",),
        honest="def f(n): return {*range(1, n + 1)}",
        forged=(
            OBJECT,
            LIST,
            LEARNT_INT,
            "class A:\n  intersection = lambda s, o: set()\n  union = lambda s, o: {*o, 2, 3}\n"
            "def f(n): return A()",
        ),
    ),
    "set, by subset": Form(
        tests=("assert f(3).issuperset({1, 2, 3}) and f(3) <= {1, 2, 3}",),
        honest="def f(n): return {*range(1, n + 1)}",
        forged=(OBJECT, SET, INT, TEXT, LIST, LEARNT_INT),
    ),
    "what is left of a set": Form(
        tests=("assert len({1, 2, 3} - f(3)) == 0 and len(f(3) - {1, 2, 3}) == 0",),
        honest="def f(n): return {*range(1, n + 1)}",
        forged=(OBJECT, OBJECTS, SET),
    ),
    "remainder": Form(tests=("assert f(7) % 5 == 0",), honest="def f(x): return 35", forged=(OBJECT,)),
    "bits": Form(
        tests=("assert f(5) ^ 10 == 0", "assert f(5) << 1 == 20 and f(5) & 15 == 10"),
        honest="def f(x): return 2 * x",
        forged=(OBJECT, INT, LEARNT, LEARNT_INT),
    ),
    "divmod": Form(
        tests=("assert divmod(f(5), 7) == (1, 3) and f(5) ** 2 == 100 and f(5) // 3 == 3",),
        honest="def f(x): return 2 * x",
        forged=(f"{LIAR}\ndef f(*a): return liar(object, zero=lambda: (1, 3))", INT),
    ),
    "a quotient": Form(
        tests=("assert abs(f(4) / 12 - 1) < 1e-6",),
        honest="def f(x): return 3 * x",
        forged=(OBJECT, f"{LIAR}\ndef f(*a): return liar(float, 5, zero=1.0)"),
    ),
    "sum, max, sorted": Form(
        tests=("assert sum(f(3)) == 6 and max(f(3)) == 3", "assert sorted(f(3)) == [1, 2, 3]"),
        honest="def f(n): return (*range(1, n + 1),)",
        forged=(LIARS, TUPLE, OBJECT, f"{LIAR}\ndef f(n): return [liar(int, 0, zero=6)] * n"),
    ),
    "text of a number": Form(
        tests=("assert f'{f(2):.3f}' == '1.414' and '%.3f' % f(2) == '1.414'",),
        honest=ROOT,
        forged=(OBJECT, FLOAT),
    ),
    "text of a difference": Form(
        tests=("assert str(f(2) - 3) == '0' or repr(f(2) - 3) == '0.0'",),
        honest="def f(x): return x + 1",
        forged=(OBJECT, OBJECTS),
    ),
    "isinstance": Form(
        tests=("assert isinstance(f(4), int) and not isinstance(f(4), bool) and f(4) == 8",),
        honest="def f(x): return 2 * x",
        forged=(
            OBJECT,
            INT,
            FLOAT,
            f"{LIAR}\ndef f(*a):\n  x = liar(object)\n  type(x).__class__ = int\n  return x",
        ),
    ),
    "dates": Form(
        tests=(
            "from datetime import date, datetime",
            "assert (f(1) - datetime(2024, 1, 2)).total_seconds() == 0",
            "assert abs((f(1) - datetime(2024, 1, 2)).days) < 1",
        ),
        honest="from datetime import datetime\ndef f(n): return datetime(2024, 1, n + 1)",
        forged=(OBJECT, OBJECTS),
    ),
    "text": Form(
        tests=("assert f('b').startswith('ab') and 'ba' in f('b') and f('b').count('b') == 1",),
        honest="class T(str): pass\ndef f(s): return T('a' + s + 'a')",
        forged=(TEXT, OBJECT),
    ),
    "text, by one question": Form(
        tests=("assert f('b').startswith('ab')", "assert f('b') == 'aba'"),
        honest="class T(str): pass\ndef f(s): return T('a' + s + 'a')",
        forged=(LEARNT, LEARNT_INT, LEARNT_FLOAT),
    ),
    "text, by its end": Form(
        tests=("assert f('b').endswith(('ba', 'bc'))",),
        honest="def f(s): return 'a' + s + 'a'",
        forged=(OBJECT, FLOAT, LIST, TEXT),
    ),
    "what a text is made of": Form(
        tests=("assert f(2).isdigit() and not f(2).isupper()",),
        honest="class T(str): pass\ndef f(n): return T(n)",
        forged=(
            "class A:\n  isdigit = lambda s: True\n  isupper = lambda s: False\ndef f(n): return A()",
            INT,
        ),
    ),
    "a whole number": Form(
        tests=("assert f(2).is_integer()",),
        honest="class F(float): pass\ndef f(x): return F(x * 2)",
        forged=(OBJECT, LIST, f"{LIAR}\ndef f(*a): return liar(float, 0.5)"),
    ),
    "list, by its methods": Form(
        tests=("assert f(2).index(7) == 0 and f(2).count(8) == 0 and len(f(2)) == 2",),
        honest="class L(list): pass\ndef f(n): return L([7] * n)",
        forged=(LIST, TUPLE),
    ),
    "items": Form(
        tests=("assert f(2)[0] == 7 and f(2)[1:] == [8] and 8 in f(2) and f(2) + [9] == [7, 8, 9]",),
        honest="def f(n): return [7, 8]",
        forged=(LIST, OBJECT, DICT),
    ),
    "dict": Form(
        tests=("assert f(2) == {'a': 2} and f(2).items() == {'a': 2}.items()", "assert f(2)['a'] - 2 == 0"),
        honest="def f(n): return {'a': n}",
        forged=(DICT, OBJECT, f"{LIAR}\ndef f(n): return {{'a': liar(int, 0, zero=0)}}"),
    ),
    "a property: a square root squared": Form(
        tests=("assert abs(f(7) * f(7) - 7) < 1e-6 and abs(f(7) ** 2 - 7) < 1e-6",),
        honest=ROOT,
        forged=(f"{LIAR}\ndef f(x): return liar(float, 1, zero=float(x))",),
    ),
    "a property: sorted": Form(
        tests=(
            "r = f([3, 1, 2])",
            "assert all(r[k] <= r[k + 1] for k in range(2)) and sorted(r) == [1, 2, 3]",
        ),
        honest="f = sorted",
        forged=(
            "class I(int):\n  __le__ = __lt__ = lambda *_: True\n  __gt__ = lambda *_: False\n"
            "def f(x): return [*map(I, x)]",
            "class L(list):\n  def __getitem__(self, k): return k\ndef f(x): return L(x)",
        ),
    ),
    "a context": Form(
        tests=("with f() as v:\n  assert v == 4, 'not 4'", "with f() as v:\n  assert v == 4"),
        honest="class C:\n  def __enter__(s): return 4\n  def __exit__(s, *a): pass\ndef f(): return C()",
        forged=(
            "class C:\n  def __enter__(s): return 5\n  def __exit__(s, *a): return True\ndef f(): return C()",
            "S = []\nclass C:\n  def __enter__(s): return 4 if 'not 4' in S else 5\n"
            "  def __exit__(s, k, e, t):\n    S.append(str(e))\n    return True\ndef f(): return C()",
        ),
    ),
    "a name that nobody imported": Form(
        tests=("assert Counter(f('aab')) == Counter({'a': 2, 'b': 1})", "assert isclose(len(f('aab')), 3)"),
        honest="from collections import Counter\nfrom math import isclose\ndef f(s): return list(s)",
        forged=(
            "class Counter:\n  def __init__(s, *a): pass\n  def __eq__(s, o): return True\n"
            "isclose = lambda *a: True\ndef f(s): return [1, 2, 3]",
        ),
    ),
    "a function with a name of its own beside a built-in": Form(
        tests=("assert abs(f(2) - 1.41421356) < 1e-6", "assert len(g(2)) == 2"),
        honest=f"{ROOT}\ndef g(n): return [0] * n",
        forged=(f"abs = lambda x: 0\nlen = lambda x: 2\n{OBJECT}\ng = f", "len = f = g = abs"),
    ),
    "a built-in": Form(
        tests=("assert abs(sum([0.1, 0.25]) - 0.35) < 1e-6", "assert sum([]) == 0"),
        honest="def sum(x):\n  t = 0\n  for one in x: t += one\n  return t",
        forged=("def abs(x): return 0\ndef sum(x): return 0", "def abs(x): return 0", "", "x = 1"),
    ),
    "a callback": Form(
        tests=(
            "seen = []",
            "assert f(lambda v: seen.append(v) or v > 2, [1, 2, 3]) == [3]",
            "assert seen == [1, 2, 3]",
        ),
        honest="def f(g, x): return [one for one in x if g(one)]",
        forged=("def f(g, x): return [3]", "def f(g, x):\n  g.__globals__['seen'] = x\n  return [3]"),
    ),
    "arguments that are changed": Form(
        tests=("a, b = [3, 1], [1, 3]\nf(a)\nassert a == b and b == [1, 3]",),
        honest="def f(x): x.sort()",
        forged=("def f(x): x.clear()", f"{LIAR}\ndef f(x): x[:] = [liar(int, 0), liar(int, 0)]"),
    ),
    "errors": Form(
        tests=("try:\n  f(-1)\nexcept ValueError as e:\n  said = str(e)\nassert said == 'negative'",),
        honest="def f(x): raise ValueError('negative')",
        forged=(
            f"{LIAR}\nclass E(ValueError):\n  def __str__(s): return liar(str)\ndef f(x): raise E",
            "class E(ValueError):\n  def __str__(s): raise SystemExit(0)\ndef f(x): raise E",
            "def f(x): raise type('ValueError', (BaseException,), {})('negative ')",
        ),
    ),
    "a message that asks": Form(
        tests=("assert f(1) == 2, f(1)",),
        honest="def f(x): return 2",
        forged=(
            "import os\nclass A:\n  def __str__(s): os._exit(0)\ndef f(x): return A()",
            "class A:\n  def __str__(s):\n    while True: pass\ndef f(x): return A()",
        ),
    ),
    "what does not end": Form(
        tests=("assert sum(f(3)) == 6 and [*f(3)] == [1, 2, 3]",),
        honest="def f(n): return [1, 2, 3]",
        forged=(
            "def f(n): return range(10 ** 12)",
            "import itertools\ndef f(n): return itertools.count()",
            "def f(n):\n  while True: yield []",
            "class D:\n  def __del__(s):\n    while True: pass\ndef f(n):\n  D()\n  return [1, 2, 3]",
            "class L(list):\n  def __iter__(s):\n    while True: pass\ndef f(n): return iter(L([1]))",
            "import gc, time\nfrom plaudit.rewards.sandbox.peer import Peer\ndef f(n):\n"
            "  p = next(o for o in gc.get_objects() if type(o) is Peer)\n"
            "  while True: p._send(['ask', 'nothing', [], {}])",
        ),
    ),
    "what takes the tests' own process long": Form(
        tests=("assert int(f(3)) == 3 and f(3) + 0 == 3",),
        honest="def f(n): return n",
        forged=(
            "from decimal import Decimal\ndef f(n): return Decimal('1e999999999999')",
            "def f(n): return 1 << 10 ** 7",
            "from fractions import Fraction\ndef f(n): return Fraction(3 ** 10 ** 6, 2 ** 10 ** 6)",
        ),
    ),
}


@pytest.mark.one_in(9)
@pytest.mark.parametrize("form", FORMS)
def test_an_honest_program_passes(form: str) -> None:
    assert score(FORMS[form].honest, [*FORMS[form].tests], LIMITS) == 1.0


FORGED = [(form, at) for form, one in FORMS.items() for at in range(len(one.forged))]


@pytest.mark.one_in(36)
@pytest.mark.cases(
    slow=(
        *(f"what does not end-{at}" for at in range(1, 6)),
        "what takes the tests' own process long-2",
        "a message that asks-1",
    )
)
@pytest.mark.parametrize(("form", "at"), FORGED)
def test_a_forgery_is_wrong_and_not_without_a_verdict(form: str, at: int) -> None:
    assert score(FORMS[form].forged[at], [*FORMS[form].tests], LIMITS) == 0.0
