"""Group preference modules and numbers for tests, the same whenever they are asked for."""

import torch
from torch import Tensor

from plaudit.models.group_preference import GroupPreference, GroupPreferenceConfig

H = 6
CONFIG = GroupPreferenceConfig(embedding=H, width=16, layers=2, heads=4)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def module(seed: int = 0, config: GroupPreferenceConfig = CONFIG) -> GroupPreference:
    """With weights large enough for differences to show."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GroupPreference(config).double()
    with torch.no_grad():
        for n, weight in enumerate(model.parameters()):
            weight.add_(normal(*weight.shape, seed=n) * 0.3)
    return model
