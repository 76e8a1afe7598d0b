"""Verify at load time, on a few tokens, that the fast forward pass gives the numbers of the model itself."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from plaudit.errors import UserError
from plaudit.models import attention
from plaudit.models.attention import PackingError
from plaudit.models.backbone import CompiledParts, evaluation_mode, modes_restored, without_head
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.models.sequence import SequenceRanks
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import ForwardInputs, Layout

VerifiableModel = Policy | RewardModel
"""What is proven: log-probs of a policy, states of a reward model."""

Trial = tuple[Tensor, Tensor]
"""What some rows score, and a gradient of it, empty where nothing learns."""
TRIAL_LENGTHS = ((5, (4, 7)), (9, (3,)))
"""Prompts and completions of the trial: a group of two, so that sharing is tried, and one alone."""
POISON_TOKEN = 0
"""A token that the trial's other texts do not hold."""


def choose_layout(model: VerifiableModel, preferred: Layout) -> tuple[Layout, str | None]:
    """The layout that this model can be trusted with, and a sentence when it is not the wanted one.
    Packing needs attention to go through transformers' common interface; a model with recurrent state or an
    attention of its own gives other numbers, and is padded instead. Fast kernels of attention are left out
    until `choose_kernels` has tried them."""
    model.use_layout(preferred)
    # One that fails here, for want of a compiler or in these numbers, would be no fault of the layout.
    model.backbone.refused_kernels = attention.FAST_KERNELS
    objection = _objection(model)
    if objection is None:
        return preferred, None
    model.use_layout("right")
    # Padding is the fallback and is tried as well: a head that is computed wrongly is so in any layout.
    padded_difference = largest_difference(model)
    if padded_difference > tolerance(model) and not _agrees_in_full(model):
        raise UserError(_refusal_message(model, padded_difference))
    wanted = "packed" if preferred == "packed" else f"padded on the {preferred}"
    name = type(model.base).__name__
    return "right", f"{name} cannot be {wanted} ({objection}): batches are padded on the right"


def _refusal_message(model: VerifiableModel, difference: float) -> str:
    if difference == float("inf"):
        return (
            f"{model.base.name_or_path}: the model's scores are NaN or infinite, and no weight is: a number "
            f"of its config.json is damaged (an epsilon, a scale), or {model.base.dtype} is too narrow for it"
        )
    if isinstance(model, Policy):
        return (
            f"the log-probs of {type(model.base).__name__} cannot be computed in blocks: they differ by "
            f"{difference:.2g} from its own logits. Its head does something that plaudit does not know"
        )
    return (
        f"the states of {type(model.base).__name__} differ by {difference:.2g} (relative to their size) in a "
        "padded batch: a token sees what follows it, so this is no causal model and cannot be scored in "
        "batches"
    )


def _objection(model: VerifiableModel) -> str | None:
    try:
        difference = largest_difference(model)
        if difference > tolerance(model) and not _agrees_in_full(model):
            return f"{'log-probs' if isinstance(model, Policy) else 'states'} differ by {difference:.2g}"
        return "one conversation reaches into the next" if leaks_between_rows(model) else None
    except PackingError as error:
        return str(error)


def has_half_digits(model: VerifiableModel) -> bool:
    return model.backbone.compute_dtype.itemsize < 4


def _agrees_in_full(model: VerifiableModel) -> bool:
    """Whether it is right in all digits: some models differ from themselves by whole nats in 16 bits."""
    if not has_half_digits(model):
        return False
    with model.backbone.in_full():
        return largest_difference(model) <= tolerance(model)


HALF_GAPS = (0.03, 0.1)
"""How far log-probs by two ways of computing in 16 bits may lie apart on average, in nats, and their
gradients as a share of their length; rounding to 16 bits makes about a hundredth."""
FULL_GAPS = (1e-4, 1e-3)


def choose_kernels(model: VerifiableModel) -> str | None:
    """Leave out fast kernels of packed attention that fail here or say something else; a sentence about it.
    Forward and backward are compared with attention by one segment after another. None where there is nothing
    to choose: on a CPU, and where batches are padded."""
    backbone = model.backbone
    if backbone.layout != "packed" or model.device.type not in attention.ACCELERATED:
        return None
    fast = attention.FAST_KERNELS
    backbone.refused_kernels = fast
    expected = _trial_with_gradient(model)
    reasons: dict[str, None] = {}
    for refused in ((), *((name,) for name in fast), fast):
        backbone.refused_kernels, backbone.kernels = refused, {}
        objection = _objection_to(lambda: _gap(expected, _trial_with_gradient(model), HALF_GAPS))
        if objection is None:
            break
        reasons[f"{' and '.join(sorted({*backbone.kernels.values()}))} {objection}"] = None
    by_kind = "; ".join(f"{kernel} ({kind})" for kind, kernel in backbone.kernels.items())
    return "; ".join([f"attention: {by_kind}", *reasons])


def compile_layers(model: VerifiableModel) -> str:
    """Compile the parts of the layers that repeat, for every kind of pass of a run; a sentence about it.
    Forward and backward are compared with the layers as they are. Where parts of one kind fail to compile or
    say something else, that kind stays as it is; where leaving out one does not help, all do."""
    backbone = model.backbone
    layers = backbone.repeated_layers
    backbone.compiled = None
    expected = _passes_of_a_run(model)
    kinds = tuple(CompiledParts(layers).kinds)
    reasons: list[str] = []
    left_out: tuple[str, ...] = ()
    for left_out in ((), *((kind,) for kind in kinds), kinds):
        backbone.compiled = CompiledParts(layers, without=left_out)
        objection = None if left_out == kinds else _objection_to(lambda: _compile_objection(model, expected))
        if objection is None:
            break
        reasons.append(objection)
    done = [kind for kind in kinds if kind not in left_out]
    if not done:
        backbone.compiled = None
    sentence = f"compiled: {', '.join(done) or 'nothing'} in {len(layers)} layers"
    return sentence + (f"; {', '.join(left_out)} as without --compile: {reasons[0]}" if reasons else "")


def share_tokens(model: VerifiableModel, sequence: SequenceRanks | None) -> None:
    """Share each row's tokens with these ranks from now on; raises where a trial then says something else.
    Every one of them must come. None leaves the model as it is."""
    if sequence is None:
        return
    name, backbone = type(model.base).__name__, model.backbone
    if model.layout != "packed":
        raise UserError(
            f"--sequence-ranks divides packed rows, and those of {name} are padded on the {model.layout}: "
            "leave it out"
        )
    batch = batch_of(_trial_examples(_vocabulary_size(model))).to(model.device)
    with evaluation_mode(model), torch.no_grad():
        whole = _fast_outputs(model, batch)
        backbone.sequence = sequence
        gap = float((_fast_outputs(model, batch) - whole).abs().max())
    if not gap <= tolerance(model):
        raise UserError(f"--sequence-ranks: with its rows divided {name} differs by {gap:.2g}; leave it out")


def _compile_objection(model: VerifiableModel, expected: Sequence[Trial]) -> str | None:
    compiled = model.backbone.compiled
    assert compiled is not None
    with compiled.compiling():
        found = _passes_of_a_run(model)
    gaps = HALF_GAPS if has_half_digits(model) else FULL_GAPS
    for before, after in zip(expected, found, strict=True):
        if (objection := _gap(before, after, gaps)) is not None:
            return objection
    # Fewer rows than any before, and nothing is compiled any more.
    _trial_pass(model, _trial_examples(_vocabulary_size(model), copies=3))
    calls, compiled.uncompiled_calls = compiled.uncompiled_calls, 0
    return "would be compiled anew for each length" if calls else None


def _passes_of_a_run(model: VerifiableModel) -> list[Trial]:
    """What passes of every kind score, with the gradient where they learn."""
    # Of many rows and of a single one, of which a compiler makes another program; learning, held out in
    # either mode, and without adapters as a reference is computed.
    many = _trial_examples(_vocabulary_size(model), copies=16)
    bare: Any = getattr(model.model, "disable_adapter", nullcontext)
    found: list[Trial] = []
    with modes_restored(model):
        for training in (True, False):
            model.train(training)
            for rows in (many, many[1:2]):
                found += [_trial_pass(model, rows)] if training else []
                for adapters in (nullcontext, bare):
                    with torch.no_grad(), adapters():
                        found.append(_trial_pass(model, rows))
    return found


def _trial_pass(model: VerifiableModel, rows: Sequence[Example]) -> Trial:
    """What the rows score, and its gradient by what learns in the first layer, as one vector."""
    outputs = _fast_outputs(model, batch_of(rows).to(model.device)).float()
    first = model.backbone.repeated_layers[:1]
    learnt = [p for layer in first for p in layer.parameters() if p.requires_grad]
    if not (outputs.requires_grad and learnt):
        return outputs.detach(), outputs.new_zeros(0)
    grads = torch.autograd.grad(_uneven_sum(outputs), learnt, allow_unused=True)
    return outputs.detach(), torch.cat([grad.flatten().float() for grad in grads if grad is not None])


def _objection_to(trial: Callable[[], str | None]) -> str | None:
    try:
        with warnings.catch_warnings():
            # What a compiler wonders about is compared with the loop.
            warnings.simplefilter("ignore")
            return trial()
    # Whatever a compiler or a driver raises: the slow way is there, and it is said.
    except Exception as error:  # noqa: BLE001
        first, *more = str(error).strip().splitlines()[:2] or [type(error).__name__]
        # A compiler's first line names its backend alone.
        return f"fails: {' '.join([first, *more])[:200] if first.endswith(':') else first[:120]}"


def _trial_with_gradient(model: VerifiableModel) -> Trial:
    """What the trial's rows score, and the gradient of a sum of it by what stands below the layers."""
    embedded: list[Tensor] = []

    def cut(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = model.base.get_input_embeddings().register_forward_hook(cut)
    batch = batch_of(_trial_examples(_vocabulary_size(model))).to(model.device)
    try:
        # Two passes are compared, and dropout would draw for each.
        with evaluation_mode(model), torch.enable_grad():
            outputs = _fast_outputs(model, batch).float()
            [gradient] = torch.autograd.grad(_uneven_sum(outputs), embedded)
    finally:
        handle.remove()
    return outputs.detach(), gradient.float()


def _uneven_sum(outputs: Tensor) -> Tensor:
    # No two outputs count alike, or what is wrong in one could make up for another.
    weight = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device).view(outputs.shape)
    return (outputs * weight).sum()


def _gap(expected: Trial, found: Trial, gaps: tuple[float, float]) -> str | None:
    """How what was found differs from what was expected by more than ``gaps``; None where it does not."""
    gap = float((found[0] - expected[0]).abs().mean())
    # Written as "not ≤", so that NaN is an objection too.
    if not gap <= gaps[0]:
        return f"differs by {gap:.2g} on average"
    share = float((found[1] - expected[1]).norm() / expected[1].norm().clamp(min=1e-30))
    return None if share <= gaps[1] else f"has a gradient that differs by {share:.0%}"


def leaks_between_rows(model: VerifiableModel) -> bool:
    """Whether a completion whose last state is not a number makes any other one not a number. A difference
    between log-probs may drown in rounding where weights are small, as in a fresh model; this cannot."""
    row, *others = _trial_examples(_vocabulary_size(model))
    first, *rest = row.completions
    # The last token: in a causal model its state may reach nothing else, so any other NaN is a leak.
    poisoned = replace(first, ids=(*first.ids[:-1], POISON_TOKEN))
    batch = batch_of([replace(row, completions=(poisoned, *rest)), *others]).to(model.device)
    with torch.no_grad(), _poison(model):
        outputs = _fast_outputs(model, batch)
    # Row 0 is the poisoned one itself; its sibling, which shares the prompt, and the next row must be clean.
    return bool(outputs[1:].isnan().any())


@contextmanager
def _poison(model: VerifiableModel) -> Iterator[None]:
    """While this lasts, the embedding of one token is not a number."""

    def spoil(_: nn.Module, ids: tuple[Any, ...], embedded: Tensor) -> Tensor:
        return embedded.masked_fill((ids[0] == POISON_TOKEN)[..., None], float("nan"))

    handle = model.base.get_input_embeddings().register_forward_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def largest_difference(model: VerifiableModel) -> float:
    """The largest difference between the fast pass and plain passes of one row at a time."""
    batch = batch_of(_trial_examples(_vocabulary_size(model))).to(model.device)
    with torch.no_grad():
        # First: one that is sharded is told by a call of the whole where it begins.
        fast = _fast_outputs(model, batch)
        rows: list[Tensor] = []
        with model.as_plain_model() as plain:
            for n, p in enumerate(batch.group_N.tolist()):
                prompt, answer = int(batch.prompt_length_P[p]), int(batch.length_N[n])
                ids = torch.cat((batch.prompt_PL[p, :prompt], batch.completion_NT[n, :answer]))
                rows.append(_plain_output(model, plain, ids, prompt))
        difference = fast - pad_sequence(rows, batch_first=True)
    largest = difference.abs().max()
    return float("inf") if torch.isnan(largest) else float(largest)


def tolerance(model: VerifiableModel) -> float:
    """The difference that rounding alone may cause, by dtype."""
    # Of the products and not of the weights: those that learn are float32 where products are of 16 bits.
    dtype = model.backbone.compute_dtype
    # Layouts sum in another order, by other kernels: equality cannot be asked; leaks are the poison's task.
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.15)


def _vocabulary_size(model: VerifiableModel) -> int:
    return model.base.config.get_text_config().vocab_size


def _trial_examples(vocabulary: int, *, copies: int = 1) -> list[Example]:
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        # Never the poison, and from a generator of its own: loading a model draws none of the run's numbers.
        return tuple(torch.randint(POISON_TOKEN + 1, vocabulary, (count,), generator=generator).tolist())

    return [
        Example(
            prompt=tokens(prompt),
            completions=tuple(
                Completion(ids=tokens(length), mask=(True,) * length, finished=True) for length in answers
            ),
        )
        for prompt, answers in TRIAL_LENGTHS * copies
    ]


def _fast_outputs(model: VerifiableModel, batch: TokenBatch) -> Tensor:
    """Log-probs ``[N, T]`` of a policy; directions of the states ``[N, T, H]`` that a reward is read in."""
    if isinstance(model, Policy):
        return model.score(batch).logp_NT

    def own(inputs: ForwardInputs) -> Tensor:
        return inputs.own_NT[batch.host.mask_NT]

    _, hidden_MH = model(batch, own, own)
    direction_NTH = hidden_MH.new_zeros(*batch.mask_NT.shape, hidden_MH.shape[-1])
    direction_NTH[batch.mask_NT] = _direction(hidden_MH)
    return direction_NTH


def _plain_output(model: VerifiableModel, plain: Any, ids: Tensor, prompt: int) -> Tensor:
    if isinstance(model, Policy):
        # Position t predicts token t + 1: from the prompt's last state to the last but one.
        logits = plain(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
        exact = torch.promote_types(model.base.dtype, torch.float32)
        return logits.to(exact).log_softmax(-1).gather(1, ids[prompt:, None])[:, 0]
    output = without_head(model.base)(input_ids=ids[None], use_cache=False)
    return _direction(output.last_hidden_state[0, prompt:])


def _direction(hidden_MH: Tensor) -> Tensor:
    """Each state with a mean square of one, so that one tolerance fits models of any scale."""
    return hidden_MH * hidden_MH.square().mean(-1, keepdim=True).clamp(min=1e-30).rsqrt()
