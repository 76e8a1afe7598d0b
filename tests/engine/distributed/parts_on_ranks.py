"""Every architecture read by parts on every rank of a real group (see test_parts.py)."""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from plaudit.engine.distributed import Ranks, full_tensor, process_group, unsharded
from plaudit.errors import UserError
from plaudit.methods.parts import read_by_parts, read_reward_by_parts
from plaudit.models.load import load_model
from plaudit.models.reward_model import FreshHead, new_reward_model, save_reward_model
from plaudit.tokens.encode import make_encoder

HEAD = FreshHead(seed=3, pooling="mean")


def outcome(folder: Path, ranks: Ranks, dtype: torch.dtype) -> str:
    policy = read_by_parts(folder, dtype, None, ranks)
    if policy is None:
        return "whole"
    model, expected = policy.base, load_model(folder, dtype=dtype, device=ranks.device).eval()
    pairs = zip(model.named_parameters(), expected.named_parameters(), strict=True)
    assert all(a == b and same(full_tensor(x.detach()), y) for (a, x), (b, y) in pairs), (folder, dtype)
    assert all(same(x, y) for x, y in zip(model.buffers(), expected.buffers(), strict=True)), (folder, dtype)
    assert model.generation_config.to_dict() == expected.generation_config.to_dict()
    ids = torch.arange(5, 17)[None]
    with torch.no_grad(), unsharded(policy.eval()), policy.as_plain_model() as plain:
        assert torch.equal(plain(ids).logits, expected(ids).logits), folder.name
    tied = [m.get_output_embeddings().weight is m.get_input_embeddings().weight for m in (model, expected)]
    assert tied[0] == tied[1]
    return "tied" if tied[0] else "parts"


def reward_outcome(folder: Path, ranks: Ranks) -> str:
    """A reward model with a fresh head, and one whose folder has it."""
    encoder, exact = make_encoder(folder), {"dtype": torch.float64}
    expected = new_reward_model(folder, HEAD, encoder=encoder, device=ranks.device, **exact)
    saved = folder.parent / "reward"
    if ranks.is_first:
        save_reward_model(expected, saved, template_of=folder, encoder=encoder)
    ranks.barrier()
    for source in (folder, saved):
        model = read_reward_by_parts(source, HEAD, ranks, encoder=encoder, compute=None, **exact)
        assert model is not None, source
        pairs = zip(model.named_parameters(), expected.named_parameters(), strict=True)
        assert all(a == b and same(full_tensor(x.detach()), y) for (a, x), (b, y) in pairs), source
        assert model.pooling == expected.pooling
    return "parts"


def same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    return mine.dtype == theirs.dtype and torch.equal(mine, theirs)


def main() -> None:
    with process_group("cpu") as ranks:
        folders = sorted(Path(sys.argv[1]).iterdir())
        found = reward_outcome(Path(sys.argv[2]), ranks)
        if ranks.is_first:
            print("reward", found, flush=True)
        for folder in folders:
            outcome(folder, ranks, torch.bfloat16)
            found = outcome(folder, ranks, torch.float32)
            if ranks.is_first:
                print(folder.name, found, flush=True)
        damaged = folders[-1] / "model.safetensors"
        if ranks.is_first:
            weights = load_file(damaged)
            next(iter(weights.values()))[-1] = float("nan")
            save_file(weights, damaged, {"format": "pt"})
        ranks.barrier()
        try:
            read_by_parts(folders[-1], torch.float32, None, ranks)
        except UserError as error:
            print(f"rank {ranks.rank}: {error}", flush=True)


if __name__ == "__main__":
    main()
