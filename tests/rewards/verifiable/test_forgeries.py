"""Programs that pass by what they say of themselves, in every form that tests have: each is wrong.

A form (`forms.txt`) is a row's tests with an honest program, which passes, and what forges just these if
there is such. Against all stand programs that solve nothing: they end what goes through their results, or
their objects lie by all operators, tell another thing each time, remember what they are given and answer it.
"""

import pytest

from plaudit.rewards.sandbox.sandbox import SandboxLimits
from tests.rewards.verifiable.test_code import pieces, score

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
MOODY = """
class Moody:
    times = 0
    def turn(self, *_):
        Moody.times += 1
        return Moody.times % 2 * 2
    __len__ = __index__ = __int__ = turn
    def __float__(self): return 3.0 * self.turn()
    def __str__(self): return 'ab'[self.turn() // 2] * 2
    __repr__ = __str__
    def __iter__(self): return iter([1, 2, 4] if self.turn() else [4, 1, 2])
    def __getitem__(self, k): return k
    def get(self, k, d=None): return d
    __eq__ = __lt__ = __gt__ = lambda self, other: bool(self.turn())
    def __hash__(self): return hash(2)
def f(*a): return Moody()
"""
LIARS = {
    "StopIteration": "def f(*a): raise StopIteration",
    "StopAsyncIteration": "def f(*a): raise StopAsyncIteration",
    "GeneratorExit": "def f(*a): raise GeneratorExit",
    "a stop of its own": "class Stop(StopIteration): pass\ndef f(*a): raise Stop",
    "of that name": "class StopIteration(Exception): pass\ndef f(*a): raise StopIteration",
    "moody": MOODY,
    "object": f"{LIAR}\ndef f(*a): return liar(object)",
    "objects": f"{LIAR}\nzero = lambda: liar(object, zero=zero)\ndef f(*a): return zero()",
    "float": f"{LIAR}\ndef f(*a): return liar(float, 0.0)",
    "int": f"{LIAR}\ndef f(*a): return liar(int, 0, zero=0)",
    "text": f"{LIAR}\ndef f(*a): return liar(str, '')",
    "list": f"{LIAR}\ndef f(*a): return liar(list, [])",
    "tuple": f"{LIAR}\ndef f(*a): return liar(tuple, ())",
    "set": f"{LIAR}\ndef f(*a): return liar(set, [], zero=set)",
    "dict": f"{LIAR}\ndef f(*a): return liar(dict, {{}})",
    "liars": f"{LIAR}\ndef f(*a): return [liar(float, 0.0), liar(object), liar(int, 0)]",
    "learnt": f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(object)",
    "learnt float": f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(float, 1.4)",
    "learnt int": f"{LIAR}\ndef f(*a): return SEEN[-1] if SEEN else liar(int, 0, zero=0)",
    "learnt class": f"{LIAR}\nclass f:\n  def __new__(cls, *a): return SEEN[-1] if SEEN else liar(object)",
}
"""Programs that claim to solve whatever they are asked."""


def read_form(parts: list[str]) -> tuple[str, list[str], list[str]]:
    """The honest program, the tests, and what forges just these."""
    honest, *rest = parts
    own = [part.replace("LIAR\n", LIAR) for part in rest if part.startswith("# forged")]
    return honest, [part for part in rest if not part.startswith("# forged")], own


FORMS = {parts[0].splitlines()[0][2:]: read_form(parts) for parts in pieces("forms.txt")}
FORGED = [(form, at) for form, (_, _, own) in FORMS.items() for at in range(len(own))]
# Each form meets four of them, and each of them a fifth of the forms.
CLAIMED = [(form, [*LIARS][(at + 5 * k) % len(LIARS)]) for at, form in enumerate(FORMS) for k in range(4)]


@pytest.mark.one_in(15)
@pytest.mark.parametrize("form", FORMS)
def test_an_honest_program_passes(form: str) -> None:
    honest, tests, _ = FORMS[form]
    assert score(honest, tests, LIMITS) == 1.0


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
    _, tests, own = FORMS[form]
    assert score(own[at], tests, LIMITS) == 0.0


@pytest.mark.one_in(50)
@pytest.mark.parametrize(("form", "liar"), CLAIMED)
def test_a_claim_to_solve_everything_is_wrong(form: str, liar: str) -> None:
    assert score(LIARS[liar], FORMS[form][1], LIMITS) == 0.0
