"""A language model in two parts: its layers, fed packed or padded batches, and its head, the last layer.

The head is a weight, a bias, and what is done to the raw product. In a packed sequence each prompt sees
itself, each completion its prompt and itself. That attention is registered with transformers under its own
name, so that any model whose attention goes through the common interface can be packed; ``verify.py`` shows
at load time whether it may.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.modeling_layers import GenericForSequenceClassification

from plaudit.errors import UserError
from plaudit.models.attention import PACKED_ATTENTION, PackedRow, PackingError, has_soft_caps
from plaudit.models.precision import Narrowed, compute_in
from plaudit.models.sequence import SequenceRanks
from plaudit.tensors.logprobs import LogitRule
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.microbatch import ForwardInputs, Layout, layout_batch


@contextmanager
def modes_restored(*modules: nn.Module) -> Iterator[None]:
    """Afterwards every part trains or evaluates as before, whatever the modules are set to meanwhile."""
    # Part by part: some may be in evaluation mode on purpose, which train() would undo.
    modes = {part: part.training for module in modules for part in module.modules()}
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """While this lasts nothing is drawn in the modules: dropout is off."""
    with modes_restored(*modules):
        for module in modules:
            module.eval()
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where logits come from."""

    layer: nn.Linear
    rule: LogitRule


def head_of(model: PreTrainedModel) -> Head:
    """The head of a causal language model, with the rule that its configuration states.
    Gemma caps logits (``final_logit_softcapping``), Cohere and Falcon-H1 multiply them (``logit_scale``,
    ``lm_head_multiplier``), Granite divides them (``logits_scaling``). Whether that was all is shown by
    `choose_layout`."""
    layer = model.get_output_embeddings()
    if type(layer) is not nn.Linear:
        raise UserError(
            f"the vocabulary head of {type(model).__name__} is a {type(layer).__name__}, not a plain linear "
            "layer: plaudit cannot compute its log-probs in blocks (an adapter on lm_head is not supported)"
        )
    config = model.config.get_text_config()
    # `or`: some configurations carry the field as None.
    scale = getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", None) or 1.0
    scale /= getattr(config, "logits_scaling", None) or 1.0
    cap = getattr(config, "final_logit_softcapping", None)
    return Head(layer=layer, rule=LogitRule(scale=scale, cap=cap))


def without_head(model: PreTrainedModel) -> nn.Module:
    """The model without its head: tokens to hidden states."""
    headless = getattr(model, model.base_model_prefix, None)
    if not isinstance(headless, nn.Module):
        raise UserError(f"{type(model).__name__} has no backbone named {model.base_model_prefix!r}")
    return headless


def language_of(model: Any) -> Any:
    """The part of a model that reads tokens: of one that sees pictures, what stands behind its tower."""
    config = model.config.get_text_config()
    parts = (part for part in model.modules() if isinstance(part, PreTrainedModel) and part.config is config)
    return next(parts, model)


def register_classifier(family: type[Any]) -> None:
    """Have transformers make a classifier of a family that it has none of (Granite, LFM2)."""
    causal: Any = AutoModelForCausalLM._model_mapping.get(family, None)
    # Its general classifier hands on what attention gave; a model that sees leaves that to its language part.
    attends = "attentions" in (getattr(causal, "_can_record_outputs", None) or {})
    if causal is None:
        causal = AutoModelForImageTextToText._model_mapping.get(family, None)
        attends = causal is not None
    if not attends or family in AutoModelForSequenceClassification._model_mapping:
        return
    [base] = [kind for kind in causal.__mro__ if PreTrainedModel in kind.__bases__]
    name = f"{causal.__name__.removesuffix('ForCausalLM')}ForSequenceClassification"
    # By a class's module transformers knows what attention and experts can do, and which buffers to fill.
    facts = {"config_class": family, "__module__": base.__module__}
    made = type(name, (GenericForSequenceClassification, base), facts)
    # Without exist_ok nothing is registered of a family that is transformers' own.
    AutoModelForSequenceClassification.register(family, made, exist_ok=True)


def refuse_unknown_extras(headless: nn.Module, extras: Mapping[str, Tensor]) -> None:
    """Raise for an extra that is no argument of the model by name: what takes any argument ignores it."""
    unknown = [name for name in extras if name not in inspect.signature(headless.forward).parameters]
    if unknown:
        raise UserError(
            f"the rows have {' and '.join(map(repr, unknown))} beside tokens, and {type(headless).__name__} "
            "takes no argument of that name; use a model that does, or leave it out of the rows"
        )


@contextmanager
def showing(extras: Mapping[str, Tensor]) -> Iterator[None]:
    """While this lasts a model's complaint about what it is shown is a sentence."""
    try:
        yield
    except ValueError as error:
        if not extras:
            raise
        raise UserError(
            f"the model refuses its pictures: {error}; its folder may have the processor's files of another "
            "model"
        ) from error


def token_types(model: nn.Module, ids: Tensor, extras: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What some models that are shown pictures want to know of each token: whether it is a picture's."""
    parameters = inspect.signature(model.forward).parameters
    names = [name for name in ("token_type_ids", "mm_token_type_ids") if extras and name in parameters]
    config: Any = model.config
    return {name: (ids == config.image_token_id).long() for name in names}


StateSelector = Callable[[ForwardInputs], Tensor]
"""Which states are wanted, as indices into the flattened ``[R·S]`` ones of an arrangement, on the host."""
OwnReader = Callable[[Tensor, Tensor | None], tuple[Tensor, ...]]
"""What is made of states, each by itself, and which of the wanted ones they are; None for all of them."""


class CompiledParts:
    """The parts of layers that repeat (attention, feed-forward, norms), compiled once for all of a kind.
    Parts and not whole layers: what is hung on a layer, or on its feed-forward part, for the time of a pass
    (copies of its weights, a checkpoint, the choice of tokens) stays outside and is free to change. What lies
    between parts is a sum with what came in."""

    def __init__(self, layers: Iterable[nn.Module], *, without: Sequence[str] = ()) -> None:
        """Compile parts of all kinds but those ``without``, by passes within `compiling`."""
        self.uncompiled_calls = 0
        """How often a part had no code for a call with a gradient, and ran as it is."""
        self._noted = False
        self._compiled: dict[FunctionType, Callable[..., Any]] = {}
        self._layers = [
            [part for part in layer.children() if _is_compilable(part) and type(part).__name__ not in without]
            for layer in layers
        ]
        self._compiling = False

    @property
    def kinds(self) -> list[str]:
        return sorted({type(part).__name__ for layer in self._layers for part in layer})

    def has_new_uncompiled_calls(self) -> bool:
        """Whether there were calls without code, once: False when it is asked again."""
        first, self._noted = self.uncompiled_calls > 0 and not self._noted, self.uncompiled_calls > 0
        return first

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """While this lasts new kinds of calls are compiled; at other times a part without code runs as it is.
        Which code a call finds then hangs on the call alone and not on those before it, so that a run that
        was interrupted goes on to the same bits; and no step waits for a compiler."""
        dynamo: Any = torch._dynamo
        # A program for each mode, gradient or none, adapters or none, and window.
        with dynamo.config.patch(recompile_limit=64), warnings.catch_warnings():
            # What the compiler wonders about is compared with the layers as they are.
            warnings.simplefilter("ignore")
            self._compiling = True
            try:
                yield
            finally:
                self._compiling = False

    @contextmanager
    def in_use(self, number: int | None = None) -> Iterator[None]:
        """While this lasts the parts of one layer, or of all, run compiled."""
        parts = [part for layer in self._layers for part in layer] if number is None else self._layers[number]
        for part in parts:
            # For the time of a pass: copies of the model and its files have nothing of it.
            part.forward = MethodType(self._function_for(part), part)
        try:
            yield
        finally:
            for part in parts:
                del part.forward

    def _function_for(self, part: nn.Module) -> Callable[..., Any]:
        forward = cast("FunctionType", type(part).forward)
        if forward not in self._compiled:
            self._compiled[forward] = self._compile(forward)
        compiled = self._compiled[forward]
        dynamo: Any = torch._dynamo
        return compiled if self._compiling else dynamo.run(compiled)

    def _compile(self, forward: FunctionType) -> Callable[..., Any]:
        forward = _with_code_of_its_own(forward)

        def compilable(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Not part of what is compiled: it is reached where there is no code for the call.
            if not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self.uncompiled_calls += 1
            return forward(part, *args, **kwargs)

        # Any length: almost every batch has a new one. Rounded where the layers as they are round, so that a
        # reference that is not compiled says the same of the same weights.
        options: Any = {
            "emulate_precision_casts": True,
            # Else a GPU's kernels may be chosen by their time, and another choice rounds in another way.
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        return torch.compile(_with_code_of_its_own(compilable), dynamic=True, options=options)


def _is_compilable(part: nn.Module) -> bool:
    own = "forward" in vars(part)
    return not own and isinstance(type(part).forward, FunctionType) and any(True for _ in part.parameters())


def _with_code_of_its_own(function: Any) -> FunctionType:
    """The same function again: torch keeps compiled code with a function's, for all models together."""
    code, name, defaults = function.__code__.replace(), function.__name__, function.__defaults__
    again = FunctionType(code, function.__globals__, name, defaults, function.__closure__)
    again.__kwdefaults__ = function.__kwdefaults__
    return again


class Backbone:
    """A Hugging Face model used for its states; no module of its own, so that weights keep their names."""

    def __init__(self, model: nn.Module, *, layout: Layout, share_prompts: bool, attention: str | None):
        """Use a PreTrainedModel, or one in PEFT's wrapper, that is already on its device."""
        self.model = model
        self.share_prompts = share_prompts
        """Whether a packed prompt is computed once for all its completions."""
        # transformers 5.17 says that torch's fused attention can do what a model with capped scores needs.
        fused = self.base._supports_sdpa and not has_soft_caps(self.base.config)
        self.plain_attention = attention or ("sdpa" if fused else "eager")
        self.kernels: dict[str, str] = {}
        """Which kernel of packed attention has served each kind of layer so far."""
        self.refused_kernels: tuple[str, ...] = ()
        """Kernels that are not used, since they gave other numbers or failed (`choose_layout`)."""
        self.narrowed: Narrowed | None = None
        """How it computes in fewer digits than its weights have; None where it does not."""
        self.compiled: CompiledParts | None = None
        """The parts of its layers that are compiled (`compile_layers`); None where none is."""
        self.sequence: SequenceRanks | None = None
        """The ranks that share each packed row's tokens (`share_tokens`); None where rows are whole."""
        self.use_layout(layout)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        wrapped = getattr(self.model, "get_base_model", None)
        return cast("PreTrainedModel", self.model if wrapped is None else wrapped())

    @property
    def device(self) -> torch.device:
        return next(self.base.parameters()).device

    @property
    def compute_dtype(self) -> torch.dtype:
        return self.base.dtype if self.narrowed is None else self.narrowed.dtype

    def computing(self, *, whole: bool = False) -> AbstractContextManager[None]:
        """While this lasts weights are as passes need them; ``whole`` for many passes without gradient."""
        return nullcontext() if self.narrowed is None else self.narrowed.computing(whole=whole)

    @contextmanager
    def in_full(self) -> Iterator[None]:
        """While this lasts passes compute in all the digits that weights have, and in float32 at least."""
        narrowed = self.narrowed
        dtype = torch.promote_types(self.base.dtype, torch.float32)
        # Divided weights are gathered in what they are narrowed to, whatever is asked of a pass.
        is_whole = narrowed is None or not narrowed.is_by_shards
        weights = (weight for weight in self.base.parameters() if weight.is_floating_point())
        wide = None
        with nullcontext() if narrowed is None else narrowed.suspended():
            if is_whole and any(weight.dtype.itemsize < dtype.itemsize for weight in weights):
                wide = compute_in(self.model, dtype, layers=self.repeated_layers, frozen=False)
            self.narrowed = wide
            try:
                yield
            finally:
                self.narrowed = narrowed
                if wide is not None:
                    wide.remove()

    def release_narrowed(self) -> torch.dtype | None:
        """Leave it to shards to narrow weights: the dtype of passes, None where they have all digits."""
        if self.narrowed is None:
            return None
        self.narrowed.remove()
        self.narrowed = Narrowed.by_shards(self.narrowed.dtype)
        return self.narrowed.dtype

    @property
    def repeated_layers(self) -> list[nn.Module]:
        """The layers that repeat: the longest list of modules in the model."""
        lists = [inner for inner in language_of(self.base).modules() if isinstance(inner, nn.ModuleList)]
        return list(max(lists, key=len)) if lists else []

    def recompute_layers(self, *, keep_products: bool = False) -> None:
        """Keep each layer's input alone, and compute the rest again in the backward pass.
        With ``keep_products`` what matrix products and attention gave stays: more memory, less to compute."""
        base: Any = self.base
        # Newer releases of transformers have a new name for it and warn about the old one.
        enable = getattr(base, "activation_checkpointing_enable", base.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
        base.enable_input_require_grads()
        for number, layer in enumerate(self.repeated_layers):
            contexts = partial(self._recompute_contexts, number, keep_products)
            wrapped: Any = partial(checkpoint, use_reentrant=False, context_fn=contexts)
            layer._gradient_checkpointing_func = wrapped

    def _recompute_contexts(self, number: int, keep_products: bool) -> tuple[Any, Any]:
        """What a layer is computed in, and what it is computed again in."""
        plain = nullcontext(), nullcontext()
        first, again = create_selective_checkpoint_contexts(_PRODUCTS) if keep_products else plain
        # The layer's hooks are not called again, so its weights are copied again here.
        group = None if self.narrowed is None else self.narrowed.layer(number)
        weights = nullcontext() if group is None else group.copied()
        return first, _within(weights, self._compiled_forward(number), again)

    def _compiled_forward(self, number: int | None = None) -> AbstractContextManager[None]:
        return nullcontext() if self.compiled is None else self.compiled.in_use(number)

    def use_layout(self, layout: Layout) -> None:
        self.layout: Layout = layout
        self._set_layout_attention()

    def states(self, batch: TokenBatch, select: StateSelector) -> Tensor:
        """The wanted states ``[…, H]`` after one pass through the layers; the others are not kept.
        ``select`` works on the host, on inputs that lie there: pick by ``batch.host``, not by ``batch``."""
        return self.read(batch, select, lambda hidden, _: (hidden,))[0]

    def read(self, batch: TokenBatch, select: StateSelector, reader: OwnReader) -> tuple[Tensor, ...]:
        """What ``reader`` makes of the wanted states, each by itself.
        Where ranks share rows it is given those that lie here, and every rank gets the values of all."""
        if self.layout == "packed" and not self.can_replace_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        inputs = layout_batch(batch.host, self.layout, share_prompts=self.share_prompts)
        selected = here = select(inputs)
        own_m = None
        sequence = self.sequence if self.layout == "packed" else None
        if sequence is not None:
            inputs = sequence.own_part(inputs)
            own_m, here = sequence.own_states(selected.flatten(), inputs.ids_RS.shape[1])
        # How many states there are is known on the host alone; asking the device would wait for all it does.
        # `unique`: completions of one prompt share the state that predicts their first token.
        more = (here.unique(), here.contiguous())
        moved, (wanted_M, place) = inputs.to_with(batch.completion_NT.device, more)
        with self.computing():
            hidden = self.all_states(moved, wanted_M)[place]
        values = reader(hidden, own_m)
        if sequence is None or own_m is None:
            return values
        return sequence.put_together(values, own_m, selected.shape)

    def all_states(self, inputs: ForwardInputs, selected_M: Tensor) -> Tensor:
        """All states ``[R·S, H]`` after one pass; only those of the given rows are complete."""
        packing: dict[str, Any] = {}
        if inputs.segments is not None:
            device, without, ran = inputs.ids_RS.device, self.refused_kernels, self.kernels
            row = PackedRow(inputs.segments, device, without=without, ran=ran, sequence=self.sequence)
            packing = {"segments": row, "packed_row": row}
        headless = without_head(self.base)
        if inputs.extras:
            refuse_unknown_extras(headless, inputs.extras)
        last_mlp = _last_mlp_only_for(language_of(headless), selected_M, inputs.ids_RS.numel())
        with self._compiled_forward(), last_mlp, showing(inputs.extras):
            output = headless(
                input_ids=inputs.ids_RS,
                position_ids=inputs.position_RS,
                # On the right nothing is masked: attention is causal, so no token sees padding behind it.
                attention_mask=None if inputs.real_RS is None else inputs.real_RS.long(),
                # A cache would keep keys and values of every layer for nothing: no token is generated here.
                use_cache=False,
                **packing,
                **inputs.extras,
                **token_types(headless, inputs.ids_RS, inputs.extras),
            )
        hidden_RSH: Tensor = output.last_hidden_state
        if inputs.extras and hidden_RSH.shape[:2] != inputs.ids_RS.shape:
            # An extra of one row a group, added to the one row of a packed batch, broadcasts silently.
            raise UserError(
                f"{type(headless).__name__} made states of shape {tuple(hidden_RSH.shape)} of tokens of "
                f"shape {tuple(inputs.ids_RS.shape)}: it does not read {', '.join(inputs.extras)} in a "
                "packed batch; look its rows up by segments (docs/design.md), or use --memory.layout right"
            )
        return hidden_RSH.flatten(0, 1)

    @contextmanager
    def attention_context(self, name: str) -> Iterator[Any]:
        """The wrapped model with the attention of this name, in evaluation mode."""
        with evaluation_mode(self.model), self.computing(whole=True):
            self._set_attention(name)
            try:
                yield self.model
            finally:
                self._set_layout_attention()

    def _set_layout_attention(self) -> None:
        self._set_attention(PACKED_ATTENTION if self.layout == "packed" else self.plain_attention)

    def _set_attention(self, name: str) -> None:
        if self.can_replace_attention:
            language_of(self.base).set_attn_implementation(name)

    @property
    def can_replace_attention(self) -> bool:
        # Where a picture's tokens see each other both ways (Gemma 3), ours would hide one from the other.
        both_ways = "token_type_ids" in inspect.signature(without_head(self.base).forward).parameters
        sees = getattr(self.base.config, "vision_config", None) is not None
        return language_of(self.base)._can_set_attn_implementation() and not (sees and both_ways)


_ATEN: Any = torch.ops.aten
_PRODUCTS: list[Any] = [
    *(_ATEN.mm.default, _ATEN.addmm.default, _ATEN.bmm.default, torch.ops.torch_attn._varlen_attn.default),
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
]
"""What is dear to compute and small to keep."""


@contextmanager
def _within(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@contextmanager
def _last_mlp_only_for(headless: nn.Module, selected_M: Tensor, tokens: int) -> Iterator[None]:
    """While this lasts, the last layer's feed-forward part is computed for the wanted tokens only."""
    # It takes each token by itself and nothing above it looks at another one, so the unwanted states, which
    # go without it, are read by nobody. That this holds for a model is shown with the layout, in
    # ``verify.py``. Experts may not take a batch of no tokens, which a rank without rows has.
    mlp = _last_feed_forward(headless) if selected_M.numel() else None
    shapes: list[torch.Size] = []

    def choose(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A layer that calls its MLP in another way is left whole: slower, and still right.
        if kwargs or len(args) != 1 or args[0].shape[:-1].numel() != tokens:
            return None
        hidden = args[0]
        # Remembered for `put_back`, which must restore it only if this hook has cut the input.
        shapes.append(hidden.shape)
        chosen = hidden.flatten(0, -2)[selected_M]
        return (chosen.view(*[1] * (hidden.ndim - 2), *chosen.shape),), kwargs

    def put_back(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if not shapes:
            return None
        first, *more = output if isinstance(output, tuple) else (output,)
        empty = first.new_zeros(tokens, first.shape[-1])
        # Zeros at the unwanted places: the residual is added to them, so they hold values that nobody reads.
        scattered = empty.index_copy(0, selected_M, first.flatten(0, -2)).view(*shapes.pop()[:-1], -1)
        return (scattered, *more) if isinstance(output, tuple) else scattered

    with ExitStack() as hooks:
        if mlp is not None:
            hooks.callback(mlp.register_forward_pre_hook(choose, with_kwargs=True).remove)
            hooks.callback(mlp.register_forward_hook(put_back).remove)
        yield


def _last_feed_forward(headless: nn.Module) -> nn.Module | None:
    """What follows attention in the last layer, where it is known by its usual name."""
    # None also where layers are computed again in the backward pass, when the wanted tokens are forgotten.
    # Exactly one stack of layers: with two (an encoder, a vision tower) it is not known which one comes last.
    stacks = [child for child in headless.children() if isinstance(child, nn.ModuleList)]
    if len(stacks) != 1 or not stacks[0] or getattr(stacks[0][-1], "gradient_checkpointing", False):
        return None
    part = getattr(stacks[0][-1], "mlp", None)
    return part if isinstance(part, nn.Module) else None


class LaidOutModel(nn.Module):
    """A Hugging Face model, or one in PEFT's wrapper, and how batches are laid out for it."""

    def __init__(
        self, model: nn.Module, *, layout: Layout, share_prompts: bool, attention: str | None
    ) -> None:
        super().__init__()
        self.model = model
        self.backbone = Backbone(model, layout=layout, share_prompts=share_prompts, attention=attention)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        return self.backbone.base

    @property
    def device(self) -> torch.device:
        return self.backbone.device

    @property
    def layout(self) -> Layout:
        return self.backbone.layout

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.backbone.use_layout(layout)

    def as_plain_model(self) -> AbstractContextManager[Any]:
        """The wrapped model with its ordinary attention, in evaluation mode: for ``generate``."""
        return self.backbone.attention_context(self.backbone.plain_attention)
