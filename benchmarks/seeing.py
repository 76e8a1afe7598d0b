"""What preferences teach a model that sees, over seeds, and whether it looks: the picture world.

    python -m benchmarks.seeing --out seeing --seeds 3     # begun again, it goes on

Each seed is a run of `plaudit run pictures`. Beside it DPO learns once more from the same pairs, each with
the picture of another row: a policy that is as good without having been given what was judged has learnt from
words alone. And the pairs of unseen pictures that people judged are told apart by each policy's implicit
reward, with their own pictures and with those of other scenes.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.studies import spread, table
from plaudit.cli.main import main as plaudit
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Message, Part, parts_of
from plaudit.data.write import write_records
from plaudit.files.atomic import write_json, write_text
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.pictures.world.exam import PictureExam, take_exam
from plaudit.pictures.world.making import PictureRows, write_rows
from plaudit.pictures.world.measure import measure
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import encode_record, make_encoder

PAIRS, AT_ONCE = 400, 32
POLICIES = ("sft", "dpo", "blind", "mdpo", "grpo", "grpo-implicit")
FIGURES = (
    "worth",
    "wins against SFT",
    "descriptions that invent",
    "named things that are not there",
    "`missing` right",
)


def pairs_of(path: Path) -> list[Comparison]:
    return [row for row in read_records(path).records if isinstance(row, Comparison)]


def with_pictures_of(pair: Comparison, other: Comparison) -> Comparison:
    """The pair with the picture of another one."""
    assert not isinstance(pair.prompt, str)
    assert not isinstance(other.prompt, str)
    (turn,), (lender,) = pair.prompt, other.prompt
    lent = next(part for part in parts_of(lender) if part.kind == "image")

    def placed(part: Part) -> Part:
        return lent if part.kind == "image" else part

    changed: Message = replace(turn, content=tuple(map(placed, parts_of(turn))))
    return replace(pair, prompt=(changed,))


def swapped(pairs: Sequence[Comparison]) -> list[Comparison]:
    """Each pair with the picture of the next."""
    return [with_pictures_of(pair, other) for pair, other in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]


def learn_blind(run: Path, seed: int) -> Path:
    """DPO as the pipeline's, on pairs with other rows' pictures."""
    out = run / "blind"
    if (out / "model" / "config.json").exists():
        return out
    config = yaml.safe_load((run / "stages" / "dpo" / "run" / "config.yaml").read_text("utf-8"))
    rows = run / "blind.jsonl"
    write_records(swapped(pairs_of(run / "stages" / "comparisons" / "rows.jsonl")), rows)
    settings = run / "blind.yaml"
    settings.write_text(yaml.safe_dump({**config, "data": str(rows), "out": str(out), "seed": seed}))
    assert plaudit(["train", "dpo", "--config", str(settings)]) == 0
    return out


def examined(run: Path, folders: Mapping[str, Path], seed: int, device: str) -> dict[str, Any]:
    """The figures of the exam of each policy, the blind one among them."""
    path = run / "examined.json"
    if not path.exists():
        policies = tuple(str(at / "model") for at in folders.values())
        exam = PictureExam(policies=policies, n=480, seed=seed, device=device)
        drawn, answers = take_exam(exam, run / "exam")
        found = {}
        for name, mine in zip(folders, answers.values(), strict=True):
            whole = measure(drawn, mine, against=() if name == "sft" else answers[exam.policies[0]])
            figures = (whole.score, whole.wins, whole.chair_s, whole.chair_i, whole.right["missing"])
            found[name] = [None if figure is None else figure.value for figure in figures]
        write_json(path, found)
    return json.loads(path.read_text("utf-8"))


@torch.no_grad()
def gaps(folder: Path, pairs: Sequence[Comparison], device: str) -> torch.Tensor:
    """How much likelier a policy has each preferred answer than the other one."""
    encoder = make_encoder(folder)
    policy = Policy(
        load_model(folder, dtype=torch.float32, device=torch.device(device)).eval(), layout="right"
    )
    found = list[torch.Tensor]()
    for at in range(0, len(pairs), AT_ONCE):
        batch = batch_of([encode_record(pair, encoder) for pair in pairs[at : at + AT_ONCE]]).to(device)
        chosen, rejected = policy.score(batch).logp_NT.sum(1).view(-1, 2).unbind(1)
        found.append(chosen - rejected)
    return torch.cat(found)


def accuracy(run: Path, folders: Mapping[str, Path], seed: int, device: str) -> dict[str, Any]:
    """The share of unseen pairs that each policy's implicit reward tells as people did, by whose picture."""
    path = run / "accuracy.json"
    if not path.exists():
        rows = run / "unseen" / "rows.jsonl"
        rows.parent.mkdir(exist_ok=True)
        request = PictureRows(
            make="comparisons", n=PAIRS, split="test", annotators="experts", seed=seed + 100
        )
        write_rows(request, rows)
        pairs = pairs_of(rows)
        reference = {name: gaps(folders["sft"] / "model", some, device) for name, some in both(pairs)}
        found = {
            policy: [
                float((gaps(folder / "model", some, device) > reference[name]).float().mean())
                for name, some in both(pairs)
            ]
            for policy, folder in folders.items()
            if policy != "sft"
        }
        write_json(path, found)
    return json.loads(path.read_text("utf-8"))


def both(pairs: Sequence[Comparison]) -> Iterator[tuple[str, Sequence[Comparison]]]:
    yield from (("own", pairs), ("other", swapped(pairs)))


def main() -> None:
    """Run what is not there yet, and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where runs and tables lie")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="default: cpu")
    args = parser.parse_args()
    exams, accuracies = [], []
    for seed in range(args.seeds):
        run = (args.out / str(seed)).absolute()
        words = ["run", "pictures", "--out", str(run), "--seed", str(seed), "--device", args.device]
        assert plaudit(words) == 0
        folders = {name: run / "stages" / name / "run" for name in POLICIES}
        folders["blind"] = learn_blind(run, seed)
        exams.append(examined(run, folders, seed, args.device))
        accuracies.append(accuracy(run, folders, seed, args.device))
    first = [
        (name, *(spread([exam[name][n] for exam in exams]) for n in range(len(FIGURES)))) for name in POLICIES
    ]
    second = [
        (name, *(spread([seed[name][n] for seed in accuracies]) for n in (0, 1)))
        for name in POLICIES
        if name != "sft"
    ]
    found = (
        f"{table(iter([('', *FIGURES), *first]))}\n{table(iter([('', 'own picture', 'another'), *second]))}"
    )
    write_text(args.out / "seeing.md", found)
    print(f"mean of {args.seeds} seeds (lowest–highest)\n\n{found}")


if __name__ == "__main__":
    main()
