"""plaudit's GRPO and PPO rounds against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.policy            prints a table for GRPO without and with a KL, and one for PPO
python -m benchmarks.policy --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.table import Side, side_by_side
from benchmarks.turns import PEER, ROOT, Command, in_turn, largest_difference, options, ours, run_plan
from benchmarks.work import SHAPES, Rows, write_policy_work

TITLE = "Policy optimisation against TRL"
OLD_PEER = ROOT / ".peers" / "trl-1.12" / "bin" / "python"
"""The environment with the last TRL that has a PPOTrainer."""
METHODS = {"grpo": "GRPO without KL", "grpo-kl": "GRPO with β = 0.04", "ppo": "PPO, 4 times through"}
"""What is compared, and what the page calls it."""
MAX_DIFFERENCE = 1e-4
"""Rewards, KL or losses of the fixed answers further apart than this are of other work: no timing counts."""
SMALL = 1024
"""Tokens of a piece where memory is short; the round is the same."""
PROMPTS = 8
"""Prompts of a round."""
ANSWERS = 8
"""Answers to each in GRPO; PPO draws one."""


def compare(method: str, shape: str, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """One method on one shape."""
    rows = Rows(count=given.steps * PROMPTS, prompt=given.prompt, completion=given.completion)
    sides = sides_of(method, given.completion)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_policy_work(work, SHAPES[shape], rows, count=PROMPTS)
        difference, count = agreement_difference(work, method, given)
        outcome = in_turn(sides, work, given)
    sentence = (
        f"On fixed answers {count - 3} rewards, KL and first losses differ by at most {difference:.1g}."
    )
    if difference > MAX_DIFFERENCE:
        outcome = [replace(side, objection=sentence) if _is_peer(side.name) else side for side in outcome]
    table = side_by_side(outcome, exact=len(outcome), unit="answers", agreement=math.inf)
    return "\n\n".join([_head(method, shape, given), sentence, _drawn(outcome), table]), outcome


def sides_of(method: str, completion: int) -> list[Command]:
    """In the order in which they take turns; ours come first."""
    options = ("--method", method, "--batch", str(PROMPTS), "--completion", str(completion))
    mine = ours("our_policy", *options)
    small = (*mine, "--tokens-at-once", str(SMALL))
    sides = [
        Command(name="plaudit", words=mine),
        Command(name=f"plaudit, {SMALL:,} tokens at once", words=small),
    ]
    names = {"default": "its defaults"}
    if method != "ppo":
        names |= {
            "plain": "nothing recomputed (plain)",
            "accumulating": "eight answers at a time (accumulating)",
            "small": "its least memory (small)",
        }
    for variant, name in names.items():
        sides.append(Command(name=f"TRL, {name}", words=theirs(*options, "--variant", variant)))
    return sides


def theirs(*words: str) -> tuple[str, ...]:
    """A run of the peer, in the environment that has this trainer."""
    program = OLD_PEER if "ppo" in words else PEER
    return (str(program), "-m", "benchmarks.peer_policy", *words)


def agreement_difference(work: Path, method: str, given: argparse.Namespace) -> tuple[float, int]:
    """The largest difference between what both sides say of the fixed answers, and how much that is."""
    options = ("--agree", "--method", method, "--completion", str(given.completion))
    options += ("--threads", str(given.threads), "--device", given.device)
    return largest_difference(ours("our_policy", *options, str(work)), theirs(*options, str(work)))


def _is_peer(name: str) -> bool:
    return name.startswith("TRL")


def _head(method: str, shape: str, given: argparse.Namespace) -> str:
    size, answers = SHAPES[shape], 1 if method == "ppo" else ANSWERS
    return (
        f"### {shape}, {METHODS[method]}\n\n{size.layers} layers of {size.hidden}, vocabulary of "
        f"{size.vocabulary:,}. A step is {PROMPTS} prompts of {given.prompt} tokens with {answers} "
        f"answer{'s' * (answers > 1)} of {given.completion} tokens each: drawn, scored and learnt from; "
        f"{given.threads} threads."
    )


def _drawn(sides: list[Side]) -> str:
    """Whether both sides have drawn as many tokens: an answer may end early by chance."""
    tokens = {
        _is_peer(side.name): sum(report.tokens for report in side.reports) / len(side.reports)
        for side in sides
        if side.reports
    }
    found = [f"{'TRL' if peer else 'plaudit'} {count:,.0f}" for peer, count in tokens.items()]
    return f"Tokens drawn in a run: {', '.join(found)}."


def main() -> None:
    """From the command line: python -m benchmarks.policy [--shapes mid] [--methods grpo ppo] [--save]."""
    parser = options("compare plaudit's policy optimisation with TRL's")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--completion", type=int, default=64, help="tokens of an answer")
    parser.set_defaults(shapes=["mid"], rounds=2, steps=4)
    given = parser.parse_args()
    if "ppo" in given.methods and not OLD_PEER.exists():
        raise SystemExit("the environment with TRL 1.12 is missing; make it with: make bench-peer")
    wanted = [(method, shape) for shape in given.shapes for method in given.methods]
    run_plan(TITLE, [partial(compare, *is_wanted, given) for is_wanted in wanted], given)


if __name__ == "__main__":
    main()
