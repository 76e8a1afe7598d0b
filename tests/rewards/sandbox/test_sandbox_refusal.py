"""Where a program cannot be confined none is run; what the sandbox fails at is no verdict."""

import struct
from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.rewards.sandbox import sandbox as home
from plaudit.rewards.sandbox.confine import GUARDED, MACHINES, seccomp_program
from plaudit.rewards.sandbox.sandbox import Sandbox, SandboxError, SandboxLimits
from tests.rewards.sandbox.confined import sandbox

# Refusing, and failing.


@pytest.fixture
def fresh() -> None:
    home._probe_confinement.cache_clear()


@pytest.mark.parametrize(("version", "said"), [(0, "no Landlock"), (2, "Landlock 2")])
def test_without_landlock_nothing_is_run(monkeypatch: pytest.MonkeyPatch, version: int, said: str) -> None:
    monkeypatch.setattr(home, "landlock_version", lambda: version)
    with pytest.raises(UserError, match=f"none is run.*{said}.*Linux 6.2"):
        Sandbox()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64")])
def test_on_other_systems_nothing_is_run(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(UserError, match=f"{system}.*{machine}.*none is run"):
        Sandbox()


@pytest.mark.usefixtures("fresh")
def test_walls_that_do_not_hold_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox()
    home._probe_confinement.cache_clear()
    monkeypatch.setattr(home, "_PROBE_PROGRAM", "print('open')")
    with pytest.raises(UserError, match="could still do what it must not"):
        Sandbox()
    home._probe_confinement.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_no_interpreter_is_a_refusal_and_not_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sandbox()
    monkeypatch.setattr(home, "_python_command", lambda: ("/no/such/python", "-c"))
    with pytest.raises(SandboxError, match="could not be started"):
        here.run_program("print(1)", b"")
    home._probe_confinement.cache_clear()
    with pytest.raises(UserError, match="cannot be confined here"):
        Sandbox()
    home._probe_confinement.cache_clear()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("plaudit.rewards.sandbox.sandbox._SOURCE_ROOT", "could not be confined or begun"),
        ("tempfile.tempdir", "temporary"),
    ],
)
def test_what_hinders_a_process_is_no_verdict(monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    here = sandbox()
    monkeypatch.setattr(name, "/nowhere")
    with pytest.raises(SandboxError, match=says):
        here.run_program("print(1)", b"")


def test_limits_make_sense() -> None:
    with pytest.raises(UserError, match="more than 0"):
        SandboxLimits(cpu_seconds=0)
    with pytest.raises(UserError, match="memory_mb"):
        SandboxLimits(memory_mb=1)


def test_the_filters_of_both_machines_are_well_formed() -> None:
    for machine in MACHINES.values():
        steps = list(struct.iter_unpack("<HBBI", seccomp_program(machine, 1234)))
        assert len(steps) < 4096
        assert steps[-1] == (0x06, 0, 0, 0x00050001)
        for at, (code, yes, no, _) in enumerate(steps):
            if code in (0x15, 0x35, 0x45):
                assert at + 1 + max(yes, no) < len(steps)
        assert {*GUARDED} <= {*machine.numbers}
        assert len({*machine.numbers.values()}) == len(machine.numbers)


def test_every_number_is_the_kernels_own() -> None:
    where = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }
    for name, path in where.items():
        if not path.exists():
            pytest.skip(f"there is no {path} to compare with")
        known: dict[str, int] = {}
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3 and words[0] == "#define" and words[2].isdigit():
                known[words[1].removeprefix("__NR").removeprefix("3264").removeprefix("_")] = int(words[2])
        known.setdefault("newfstatat", known.get("fstatat", -1))
        for call, number in MACHINES[name].numbers.items():
            assert known[call] == number, (name, call)
