"""DeepSpeed's ZeRO in the place of our own step: ``--engine deepspeed``.

Each rank keeps a part of AdamW's moments, of the gradients and of float32 weights, on its device or in the
memory of its host. Stage 2 leaves whole weights in the module; stage 3 divides these as well, and gathers
them layer by layer for a pass. Rajbhandari et al. 2019, arXiv:1910.02054; offload: Ren et al. 2021,
arXiv:2101.06840.

What DeepSpeed would do in another way is left to us: the sum over ranks and not the mean, the clip, the rate,
what happens to numbers that are not finite, and checkpoints, which have our names and whole tensors.
"""

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from plaudit.engine.distributed import BUCKET_ELEMENTS, Ranks, group_of_one
from plaudit.engine.optimizer import trained_parameters
from plaudit.engine.settings import DeepSpeedSettings
from plaudit.errors import UserError
from plaudit.models.backbone import LaidOutModel
from plaudit.models.load import device_of

WHOLE_NUMBERS = 2**13
"""Weights of at most so many numbers, such as norms, stay gathered in stage 3."""
MOMENTS = ("exp_avg", "exp_avg_sq")


def import_deepspeed(device: str) -> Any:
    """DeepSpeed, which has to be imported before ranks join a group: it keeps the one that it finds."""
    # Read when it is imported; else it says which devices it has not found.
    os.environ.setdefault("DS_ACCELERATOR", device_of(device).type)
    try:
        import deepspeed  # pyright: ignore[reportMissingImports]  an extra
    except ImportError as error:
        raise UserError('--engine deepspeed needs DeepSpeed: pip install "plaudit[deepspeed]"') from error
    # Kernels of its inference on CPUs, which it would compile at its start.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # Names that it calls torch's collectives by; a user cannot change them.
    warnings.filterwarnings("ignore", "`torch.distributed.*is deprecated", FutureWarning)
    return deepspeed


class ZeroAdamW:
    """A module's weights, gradients and AdamW's moments, as DeepSpeed keeps them.
    It has what a step and a checkpoint ask of an optimiser, and of who keeps gradients."""

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, settings: DeepSpeedSettings, ranks: Ranks
    ) -> None:
        """Divide the module over the ranks; ``optimizer`` is an AdamW that has not taken a step."""
        self._stage, self._ranks, self._inner = settings.stage, ranks, optimizer
        self._weights = trained_parameters(module)
        self.shapes = {name: (tuple(p.shape), str(p.dtype)) for name, p in self._weights.items()}
        """As a checkpoint has them: whole, and in the numbers that learn."""
        self._module: Any = module
        self._before = {id(weight): set(vars(weight)) for weight in module.parameters()}
        self._factor, self._is_complete = 1.0, False
        self._resources = ExitStack()
        self._resources.enter_context(group_of_one())
        narrow = settings.stage == 3 and isinstance(module, LaidOutModel)
        # Copies of weights are made before a layer runs, and in stage 3 there is nothing to copy yet.
        dtype = cast("LaidOutModel", module).backbone.release_narrowed() if narrow else None
        # Without a starter nobody has said it.
        os.environ.setdefault("LOCAL_RANK", str(ranks.device.index or 0))
        self._deepspeed = import_deepspeed(str(ranks.device))
        config = _deepspeed_config(settings, dtype)
        self._engine: Any = self._deepspeed.initialize(
            model=module, optimizer=optimizer, config=config, dist_init_required=False
        )[0]
        self._zero: Any = self._engine.optimizer
        self.zero_grad()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """AdamW's groups; their weights are flat parts of many."""
        return self._inner.param_groups

    @property
    def state(self) -> dict[nn.Parameter, Any]:
        """Nothing by weight: see `moments`."""
        return {}

    def backward(self, loss: Tensor) -> None:
        """Differentiate; gradients are averaged over ranks and leave the weights for the parts."""
        # What the engine would do in a forward pass of its own; ours goes through the module.
        self._zero.clear_backward_seen_flag()
        self._engine.backward(loss)

    def norm(self, part: nn.Module) -> Tensor:
        """The Euclidean norm of the gradient summed over ranks; infinite where it is no number."""
        assert part is self._module, "gradients are measured all together"
        if not self._is_complete:
            self._zero.finalize_gradient_accumulation_boundary()
            self._is_complete = True
        if self._stage == 3:
            mean = self._deepspeed.runtime.utils.combine_grad_norm_groups(self._zero._get_norm_groups())
        else:
            mean = self._zero.scaled_global_norm()
        # It says -1 of what is not finite.
        return torch.where(mean < 0, torch.inf, mean) * (self._ranks.world_size * self._factor)

    def scale(self, part: nn.Module, factor: float) -> None:
        """Multiply all gradients, when the step is taken."""
        assert part is self._module, "gradients are scaled all together"
        self._factor *= factor

    def step(self) -> None:
        """Move the weights by AdamW."""
        # DeepSpeed divides gradients by the scale of the loss: here by what the mean over ranks, and a clip,
        # have to be divided by. Its own clip would add a millionth to the norm.
        self._zero.loss_scale = 1.0 / (self._ranks.world_size * self._factor)
        self._zero.step()
        self._zero.loss_scale = 1.0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, also those of a step that was begun and is not taken."""
        zero, self._factor, self._is_complete = self._zero, 1.0, False
        zero.zero_grad(set_to_none=set_to_none)
        zero.set_gradient_accumulation_boundary(False)
        zero.norm_for_param_grads = {}
        if self._stage == 3:
            zero._offload_boundary_param_ids = set()
            return
        zero._release_preflattened_grad_buffers()
        # Counted from here: the first backward pass overwrites what lies in the memory of the host.
        zero.micro_step_id, zero._offload_accumulated_param_ids = -1, set()
        for number in range(len(zero.bit16_groups)):
            zero.averaged_gradients[number] = zero.all_grad_tensors[number] = None

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight that learns, whole and in float32, one after the other; every rank must come."""
        for name, weight in self._weights.items():
            yield name, self._deepspeed.utils.safe_get_full_fp32_param(weight)

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """AdamW's state by weight and key, whole, one after the other; every rank must come."""
        if not self._inner.state:
            return
        self._link_moments()
        step = next(iter(self._inner.state.values()))["step"]
        for name, weight in self._weights.items():
            yield f"{name}/step", step
            for key in MOMENTS:
                yield f"{name}/{key}", self._deepspeed.utils.safe_get_full_optimizer_state(weight, key)

    def load(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Take weights and AdamW's state of a checkpoint; every rank must come, with the same."""
        # Of a checkpoint each tensor is read when it is asked for.
        steps = [float(moments[path]) for path in moments if path.endswith("/step")]
        self._begin_state(max(steps, default=0.0))
        if moments:
            self._link_moments()
        for name, weight in self._weights.items():
            self._set(weight, None, weights[name])
            for key in MOMENTS if moments else ():
                # A weight that no step had reached has none.
                self._set(weight, key, moments.get(f"{name}/{key}", torch.zeros_like(weights[name])))
            # And what passes compute with.
            with torch.no_grad(), self._gathered([weight], modifier_rank=0):
                weight.copy_(weights[name])

    def _begin_state(self, step: float) -> None:
        """Moments of zero after so many steps, none at all before the first."""
        self._inner.state.clear()
        flat = self._zero.fp32_partitioned_groups_flat if self._stage == 3 else None
        for part in (flat or self._zero.single_partition_of_fp32_groups) if step else ():
            made = {key: torch.zeros_like(part).detach() for key in MOMENTS}
            self._inner.state[part] = {"step": torch.tensor(step, device=part.device), **made}

    def _link_moments(self) -> None:
        """Let stage 2 find the moments of each weight in its flat parts."""
        if self._stage == 2:
            # Within its first step DeepSpeed links all groups when only the first one has moments.
            self._zero._hp_optimizer_states_linked = False
            self._zero._lazy_init_hp_params_optimizer_state()

    def _set(self, weight: nn.Parameter, key: str | None, values: Tensor) -> None:
        """Overwrite this rank's part of a weight in float32, or of one of its moments."""
        whole: Any = weight
        if self._stage == 2:
            whole.set_full_hp_param(values.to(weight.device), key)
            return
        size, rank = whole.ds_tensor.numel(), self._ranks.rank
        padded = nn.functional.pad(values.flatten(), (0, size * self._ranks.world_size - values.numel()))
        part = padded[size * rank : size * (rank + 1)]
        if key is None:
            self._deepspeed.utils.safe_set_local_fp32_param(weight, part)
        else:
            self._deepspeed.utils.safe_set_local_optimizer_state(weight, part, key)

    def _gathered(self, weights: Sequence[nn.Parameter], **more: Any) -> AbstractContextManager[None]:
        """While this lasts weights that stage 3 has divided are whole."""
        return self._deepspeed.zero.GatheredParameters(weights, enabled=self._stage == 3, **more)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Afterwards the module is an ordinary one again; whole, unless it ends by an error."""
        try:
            yield
            self._make_whole()
        finally:
            self._release()

    def _make_whole(self) -> None:
        learnt = {id(self._weights[name]): whole for name, whole in self.weights()}
        weights = list(self._module.parameters())
        frozen = [weight for weight in weights if id(weight) not in learnt]
        with self._gathered(frozen):
            learnt |= {id(weight): weight.detach().clone() for weight in frozen}
        self._engine.destroy()
        for weight in weights:
            weight.data = learnt[id(weight)]
            # What DeepSpeed has hung on it holds the group, which ends before the module does.
            for name in vars(weight).keys() - self._before[id(weight)]:
                delattr(weight, name)
        for part in self._module.modules():
            # What finds out that a weight has to be gathered.
            part._parameters = dict(part._parameters)

    def _release(self) -> None:
        """Let go of what would outlive the run: hooks, and the groups that DeepSpeed made."""
        self._engine.destroy()
        # Without an end of their own: a stack of modules, and a cache that holds all that it was asked by.
        zero = self._deepspeed.runtime.zero
        zero.parameter_offload.FWD_MODULE_STACK.clear()
        coordinator = zero.partitioned_param_coordinator.PartitionedParameterCoordinator
        cached = vars(coordinator)["_PartitionedParameterCoordinator__params_to_release"]
        inspect.getclosurevars(cached).nonlocals["func"].cache_clear()
        self._deepspeed.utils.groups._release_process_group_references()
        self._deepspeed.comm.comm.cdb = None
        self._engine = self._zero = self._module = None
        self._weights = {}
        self._resources.close()


def _deepspeed_config(settings: DeepSpeedSettings, dtype: torch.dtype | None) -> dict[str, Any]:
    offload = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    places = {"offload_optimizer": offload, **({"offload_param": offload} if settings.stage == 3 else {})}
    return {
        # It has no say: micro-batches are of our size, and a step ends where we say so.
        "train_micro_batch_size_per_gpu": 1,
        "managed_gradient_accumulation": False,
        "steps_per_print": 0,
        "bf16": {"enabled": dtype == torch.bfloat16},
        # Sums of gradients are float32 whatever passes compute in.
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": settings.stage,
            "reduce_bucket_size": BUCKET_ELEMENTS,
            "stage3_param_persistence_threshold": WHOLE_NUMBERS,
            **(places if settings.offload else {}),
        },
    }
