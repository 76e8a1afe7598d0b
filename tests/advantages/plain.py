"""Numbers, masks and groups drawn at random."""

import torch


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(seed, rows, width, share=0.6):
    """A mask with holes anywhere; a row may be empty."""
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < share


def grouped(seed, rows, most=5):
    """Numbers of groups that rise, with gaps, from left to right."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most, (rows,), generator=generator).sort().values * 3 + 4


def same(found, wanted, tolerance=1e-12):
    """Whether a tensor is a list of numbers, or of lists."""
    torch.testing.assert_close(
        found.double(), torch.tensor(wanted, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )
