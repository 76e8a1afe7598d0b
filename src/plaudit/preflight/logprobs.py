"""What was loaded, and what it computes on the user's own short rows: alike however a batch is laid out.

Tokens are scored in two ways, by plaudit and by transformers' own pass, and the difference is measured.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from plaudit.engine.distributed import is_sharded
from plaudit.engine.metrics import values_of
from plaudit.models.attention import PackingError
from plaudit.models.backbone import token_types, without_head
from plaudit.models.policy import Policy, log_ratio_tolerance
from plaudit.models.reward_model import RewardModel
from plaudit.preflight import check
from plaudit.preflight.samples import SHARDED, shortest_examples
from plaudit.preflight.tokenization import end_tokens
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import Layout, layout_batch

Model = Policy | RewardModel
"""A policy, scored by token log-probs, or a reward model, scored by its value at every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDifference:
    """The largest and the mean difference between two scorings of the same tokens."""

    largest: float
    mean: float
    origin: str


@contextmanager
def temporary_layout(model: Model, layout: Layout, *, share: bool) -> Iterator[None]:
    """Batches are laid out like this while the context lasts."""
    previous_layout, previously_shared = model.layout, model.backbone.share_prompts
    model.use_layout(layout)
    model.backbone.share_prompts = share
    try:
        yield
    finally:
        model.use_layout(previous_layout)
        model.backbone.share_prompts = previously_shared


def token_scores(model: Model, batch: TokenBatch) -> Tensor:
    """Log-prob (policy) or value (reward model) of each token, ``[N, T]``, in the model's present layout."""
    return model.score(batch).logp_NT if isinstance(model, Policy) else model.values(batch)


def transformers_token_scores(model: Model, examples: Sequence[Example]) -> Tensor:
    """The same scores from transformers' own forward pass over one answer at a time, ``[N, T]``."""
    rows: list[Tensor] = []
    with model.as_plain_model() as plain:
        for example in examples:
            for k, answer in enumerate(example.completions):
                ids = torch.tensor([*example.prompt, *answer.ids], device=model.device)
                extras = layout_batch(_device_batch(model, [example.select([k])]), "right").extras
                rows.append(
                    _transformers_scores_of_completion(model, plain, ids, len(example.prompt), extras)
                )
    return pad_sequence(rows, batch_first=True)


def _transformers_scores_of_completion(
    model: Model, plain: Any, ids: Tensor, prompt_length: int, extras: Mapping[str, Tensor]
) -> Tensor:
    headless = without_head(model.base)
    extras = {**extras, **token_types(headless, ids[None], extras)}
    if isinstance(model, Policy):
        logits = plain(input_ids=ids[None], use_cache=False, **extras).logits[0, prompt_length - 1 : -1]
        # A softmax in half precision would add a rounding of its own to the one that is looked for.
        exact = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(exact).log_softmax(-1).gather(1, ids[prompt_length:, None])[:, 0]
    score: Any = model.base.score
    hidden = headless(input_ids=ids[None], use_cache=False, **extras).last_hidden_state
    return model.normalisation.apply(score(hidden)[0, prompt_length:, 0])


def token_difference(one_NT: Tensor, other_NT: Tensor, batch: TokenBatch) -> TokenDifference:
    """The difference over trained tokens; a value that is not a number counts as infinitely far."""
    difference_NT = (one_NT - other_NT).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    difference_NT = difference_NT.masked_fill(~batch.mask_NT, 0.0)
    worst = int(difference_NT.amax(-1).argmax())
    mean = float(difference_NT.sum()) / max(1, int(batch.mask_NT.sum()))
    origin = batch.origin_N[worst] or "a row"
    return TokenDifference(largest=float(difference_NT.max()), mean=mean, origin=origin)


ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-3}
"""How far two ways to compute one number may lie apart: ten thousand roundings; in float64, too, norms are
computed in float32."""
HALF_PRECISION_MAX_ROUNDINGS = 50
"""Rounding errors of half precision by which a log-prob may be off: as many as a deep model piles up."""
HALF_PRECISION_MEAN_ROUNDINGS = 12


def check_dropout(subject: check.PreflightSubject) -> check.Result:
    """The same rows twice, as a model that learns sees them, give the same bits."""
    model, examples = _model_and_rows(subject, 2)
    # Dropout acts in training mode only; that of adapters is wanted (--lora.dropout).
    model.train()
    for name, module in model.named_modules():
        if name.endswith("lora_dropout"):
            module.eval()
    with torch.no_grad():
        first_NT, second_NT = (token_scores(model, _device_batch(model, examples)) for _ in range(2))
    difference = token_difference(first_NT, second_NT, _device_batch(model, examples))
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    # To the last bit: under any tolerance a small dropout would pass.
    if difference.largest == 0:
        note = "" if all(layer.training for layer in layers.values()) else " (without lora.dropout)"
        return check.passed(f"{len(examples)} rows twice while learning: the same to the last bit{note}")
    random_layers = [name for name, layer in layers.items() if layer.training and layer.p > 0]
    who = f"; these draw: {', '.join(random_layers[:3])}" if random_layers else ""
    return check.failed(
        f"{difference.origin}: {_score_name(model)} of one row differ by {difference.largest:.2g} each "
        f"time{who}"
    )


def check_reference_agrees(subject: check.PreflightSubject) -> check.Result:
    """Before the first step policy and reference say the same of every token."""
    policy, reference = subject.policy, subject.reference
    if policy is None or reference is None:
        return check.not_applicable("nothing is compared with a reference")
    examples = shortest_examples(subject)
    if not examples:
        return check.not_applicable("there is no row to look at")
    batch = _device_batch(policy, examples)
    if not subject.same_reference:
        return _other_reference(subject, reference.logp(examples, batch)[batch.mask_NT])
    # A run that draws compares log-probs at the temperature at which it draws.
    temperature = 1.0 if subject.trial is None else subject.sampling.temperature
    policy.eval()
    with torch.no_grad():
        logp_NT = policy.score(batch, temperature=float(temperature)).logp_NT
    ref_NT = reference.logp(examples, batch).to(logp_NT.dtype)
    difference = token_difference(logp_NT, ref_NT, batch)
    log_ratio_M = (logp_NT - ref_NT)[batch.mask_NT]
    # mean(eˣ − 1 − x), the k3 estimate, cannot cancel to 0 as a mean of x can; expm1 keeps its digits.
    kl = float((log_ratio_M.expm1() - log_ratio_M).mean())
    far = float(log_ratio_M.abs().max().exp())
    details = (
        f"{len(examples)} rows: policy and reference differ by up to {difference.largest:.1g} nats a token, "
        f"the ratio is off by {far - 1:.1g}, the KL is {kl:.1g}{_first_row_loss(subject)}"
    )
    if difference.largest <= log_ratio_tolerance(policy):
        return check.passed(details)
    return check.failed(f"{difference.origin}: {details}")


def _other_reference(subject: check.PreflightSubject, ref_M: Tensor) -> check.Result:
    other = "the reference is another model than the one that the run begins with"
    nats, blind = -float(ref_M.mean()), math.log(len(subject.encoder.info.tokenizer))
    if subject.trial is not None or nats <= blind + NOISE:
        return check.not_applicable(other)
    return check.warned(
        f"{other}, and finds answers less likely ({nats:.1f} nats a token) than chance ({blind:.1f})"
    )


BASE_ROWS, FEWEST_BASE_ROWS = 32, 12
"""Rows whose answers the untouched model reads, and how many with prompts of their own say something."""
NOISE, KNOWLEDGE = 1.0, 0.1
"""Nats: how far above ln V random weights of a wide model may be, and how far below it knowledge begins."""


def check_base_loss(subject: check.PreflightSubject) -> check.Result:
    """The untouched model reads the words of the answers of up to 32 short rows; not the ends, whose tokens a
    base model may never have seen.

    More than ln V nats a token, which a model has that finds all V tokens alike, is worse than knowing
    nothing. Then it reads each answer behind the prompt of another row: where its own prompt makes it no
    likelier, beyond twice the standard error of the difference, answers and prompts do not belong together.
    """
    policy = subject.policy
    rows = [] if policy is None or not subject.trained else shortest_examples(subject, BASE_ROWS)
    ends = end_tokens(subject.encoder)
    examples = [words for row in rows if any((words := _words_of_answer(row, ends)).completions[0].mask)]
    if policy is None or not examples:
        return check.not_applicable("no given answers are learnt by a language model")
    policy.eval()
    nats_N = _nats_a_token(policy, examples)
    whole, blind = float(nats_N.mean()), math.log(len(subject.encoder.info.tokenizer))
    details = f"{whole:.2f} nats a token over the answers of {len(examples)} rows; ln V is {blind:.2f}"
    if not whole <= blind + NOISE:
        return check.failed(f"{details}: the model does worse than one that knows nothing")
    if whole > blind - KNOWLEDGE:
        norms = (weight for name, weight in policy.named_parameters() if weight.ndim == 1 and "norm" in name)
        trained = any(bool((weight != weight[0]).any()) for weight in norms)
        verdict = check.warned if trained or whole > blind + KNOWLEDGE else check.passed
        details += ": the model knows nothing of such text yet"
        return verdict(f"{details}, although its weights were trained" if trained else details)
    swapped = _behind_other_prompts(examples)
    if len(swapped) < FEWEST_BASE_ROWS:
        return check.passed(details)
    own_N = nats_N[[number for number, _ in swapped]]
    gained_N = _nats_a_token(policy, [example for _, example in swapped]) - own_N
    gained, error = float(gained_N.mean()), float(gained_N.std()) / math.sqrt(len(swapped))
    details += f"; behind the prompt of another row {gained:+.2f} ± {error:.2f}"
    if gained > 2 * error:
        return check.passed(details)
    return check.warned(f"{details}: an answer's own prompt makes it no likelier")


def _words_of_answer(row: Example, ends: Set[int]) -> Example:
    answer = row.completions[0]
    mask = tuple(on and token not in ends for token, on in zip(answer.ids, answer.mask, strict=True))
    return replace(row, completions=(replace(answer, mask=mask),))


def _nats_a_token(policy: Policy, examples: Sequence[Example]) -> Tensor:
    """−log π of the trained tokens of each row, the mean of the row, ``[N]``; a few rows at a time."""
    nats: list[Tensor] = []
    for at in range(0, len(examples), check.SAMPLE_SIZE):
        batch = _device_batch(policy, examples[at : at + check.SAMPLE_SIZE])
        with torch.no_grad():
            logp_NT = policy.score(batch).logp_NT.double()
        nats.append((-logp_NT.where(batch.mask_NT, 0.0).sum(-1) / batch.mask_NT.sum(-1)).cpu())
    return torch.cat(nats)


def _behind_other_prompts(examples: Sequence[Example]) -> list[tuple[int, Example]]:
    """Each answer with its number, behind the next row's prompt that is another one; rows of words alone."""
    words = [(number, example) for number, example in enumerate(examples) if not example.extras]
    swapped: list[tuple[int, Example]] = []
    for at, (number, example) in enumerate(words):
        others = (other.prompt for _, other in (*words[at + 1 :], *words[:at]))
        prompt = next((prompt for prompt in others if prompt != example.prompt), None)
        if prompt is not None and example.prompt:
            swapped.append((number, replace(example, prompt=prompt)))
    return swapped


MIN_LAYERS = 3
# Matrices of sound models lie within it of the median of their kind; a slip of a decimal point does not.
MAX_RATIO = 6.0
# How near the spread of new weights a matrix is, and how many of a layer are, where it was made anew.
NEW_TOLERANCE, NEW_MATRICES = 0.03, 3
_LAYER = re.compile(r"\.(\d+)\.")


class WeightFigures(NamedTuple):
    mean: float
    rms: float
    constant: bool
    matrix: bool

    @property
    def spread(self) -> float:
        return math.sqrt(max(0.0, self.rms**2 - self.mean**2))


Kinds = Mapping[str, Mapping[str, WeightFigures]]


def check_weights(subject: check.PreflightSubject) -> check.Result:
    """Compares each matrix and each norm with those that have its place in other layers, as they were loaded.

    It warns of zeros, of a size six times another than the median's, of a norm that no step has moved where
    others were moved, of two layers with the same numbers, and of a layer that alone has the spread of new
    weights. Which layer stands where, and which way round a square matrix does, no figure tells.
    """
    model = subject.policy or subject.scorer
    if model is None or is_sharded(model):
        return check.not_applicable(SHARDED if model else "no model learns here")
    kinds = figures_by_kind(model)
    if not kinds:
        return check.not_applicable(f"the model has fewer than {MIN_LAYERS} layers")
    initial = getattr(model.base.config.get_text_config(), "initializer_range", None)
    doubts = [*_outliers(kinds), *_repeated(kinds), *(_made_anew(kinds, initial) if initial else ())]
    layers = max(map(len, kinds.values()))
    if doubts:
        return check.warned(f"of {layers} layers: {'; '.join(doubts[:3])}{' …' * (len(doubts) > 3)}")
    return check.passed(f"{layers} layers, {len(kinds)} kinds of weights: none stands out from its kind")


def figures_by_kind(model: nn.Module) -> Kinds:
    """Of each kind of weight, whose name has a star for the layer, the figures by layer."""
    kinds: dict[str, dict[str, WeightFigures]] = defaultdict(dict)
    for name, weight in model.named_parameters():
        found = _LAYER.search(name)
        is_norm = weight.ndim == 1 and name.endswith("weight")
        if found and weight.is_floating_point() and "lora_" not in name and (weight.ndim == 2 or is_norm):
            kinds[name.replace(found[0], ".*.", 1)][found[1]] = _figures(weight.detach())
    return {kind: layers for kind, layers in kinds.items() if len(layers) >= MIN_LAYERS}


def _figures(weight: Tensor) -> WeightFigures:
    norm = float(torch.linalg.vector_norm(weight, dtype=torch.promote_types(weight.dtype, torch.float32)))
    return WeightFigures(
        mean=float(weight.mean(dtype=torch.float32)),
        rms=norm / math.sqrt(weight.numel()),
        constant=bool((weight == weight.flatten()[0]).all()),
        matrix=weight.ndim == 2,
    )


def _outliers(kinds: Kinds) -> Iterator[str]:
    for kind, layers in kinds.items():
        middle = median(figures.rms for figures in layers.values())
        moved = sum(not figures.constant for figures in layers.values())
        for layer, figures in layers.items():
            name = kind.replace("*", layer)
            if figures.rms == 0 < middle:
                yield f"{name} is all zeros"
            elif figures.constant and 2 * moved > len(layers):
                yield f"{name} is {figures.mean:g} everywhere, as if it had not been loaded"
            elif figures.matrix and middle and not 1 / MAX_RATIO < figures.rms / middle < MAX_RATIO:
                yield f"{name} is {figures.rms / middle:.2g} times as large as those of other layers"


def _repeated(kinds: Kinds) -> Iterator[str]:
    whole: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for layers in kinds.values():
        for layer, figures in layers.items():
            if figures.matrix and not figures.constant:
                whole[layer].append((figures.mean, figures.rms))
    first: dict[tuple[tuple[float, float], ...], str] = {}
    for layer, all_figures in whole.items():
        if (other := first.setdefault(tuple(all_figures), layer)) != layer:
            yield f"layers.{layer} has the numbers of layers.{other}"


def _made_anew(kinds: Kinds, initial: float) -> Iterator[str]:
    matrices = [layers for layers in kinds.values() if any(figures.matrix for figures in layers.values())]
    new = {
        layer: sum(
            abs(layers[layer].spread / initial - 1) < NEW_TOLERANCE for layers in matrices if layer in layers
        )
        for layer in {layer for layers in matrices for layer in layers}
    }
    fresh = sorted(layer for layer, count in new.items() if count >= NEW_MATRICES)
    if fresh and 2 * len(fresh) < len(new):
        yield (
            f"layers.{', '.join(fresh)} alone has the spread of new weights ({initial}), as if it had not "
            "been loaded"
        )


def check_padding_sides(subject: check.PreflightSubject) -> check.Result:
    """Padding on either side changes nothing."""
    return _compare_layouts(subject, {"left": "padded on the left", "right": "padded on the right"})


def check_packing(subject: check.PreflightSubject) -> check.Result:
    """A row says the same among others as alone."""
    model, _ = _model_and_rows(subject)
    if model.layout != "packed":
        return check.not_applicable(f"batches of this run are padded on the {model.layout}")
    return _compare_layouts(subject, {"packed": "packed end to end"})


def check_prompt_sharing(subject: check.PreflightSubject) -> check.Result:
    """A prompt computed once for all its answers counts as if it had been computed for each."""
    model, _ = _model_and_rows(subject)
    if model.layout != "packed" or not model.backbone.share_prompts:
        return check.not_applicable("prompts are computed for each of their answers")
    return _compare_layouts(subject, {"packed": "packed behind one prompt"}, share=True)


def check_bf16(subject: check.PreflightSubject) -> check.Result:
    """The numbers of the run are near those of float32."""
    model, examples = _model_and_rows(subject)
    products = model.backbone.compute_dtype
    if products in ROUNDING:
        return check.not_applicable(f"products are made in {_dtype_name(products)}")
    batch = _device_batch(model, examples)
    model.eval()
    with torch.no_grad():
        with model.backbone.in_full():
            exact_NT = token_scores(model, batch)
        run_NT = token_scores(model, batch)
    difference = token_difference(run_NT, exact_NT, batch)
    eps = torch.finfo(products).eps
    # A token of 20 nats has logits that are larger by as much, and so are their roundings.
    reach_NT = 1 + exact_NT.abs() / 10
    beyond = float(((run_NT - exact_NT).abs() / reach_NT)[batch.mask_NT].max())
    details = (
        f"{_dtype_name(products)} and {_dtype_name(exact_NT.dtype)}: {_score_name(model)} of "
        f"{len(batch.origin_N)} answers differ by {difference.mean:.2g} on average, "
        f"by up to {difference.largest:.2g} ({difference.origin})"
    )
    mean_reach = float(reach_NT[batch.mask_NT].mean())
    good = (
        beyond <= HALF_PRECISION_MAX_ROUNDINGS * eps
        and difference.mean <= HALF_PRECISION_MEAN_ROUNDINGS * eps * mean_reach
    )
    return check.passed(details) if good else check.failed(details)


def _compare_layouts(
    subject: check.PreflightSubject, layouts: dict[Layout, str], *, share: bool = False
) -> check.Result:
    """Each of these layouts against transformers' own pass over one answer at a time."""
    model, short_examples = _model_and_rows(subject)
    if is_sharded(model):
        return check.not_applicable(SHARDED)
    examples = _with_more_completions(short_examples, answers=2 if share else 1)
    batch = _device_batch(model, examples)
    model.eval()
    differences: list[str] = []
    with torch.no_grad():
        plain_NT = transformers_token_scores(model, examples)
        for layout, words in layouts.items():
            try:
                with temporary_layout(model, layout, share=share):
                    layout_NT = token_scores(model, batch)
            except PackingError as error:
                return check.failed(f"this model cannot be {words}: {error}")
            difference = token_difference(layout_NT, plain_NT, batch)
            scale = 1.0 if isinstance(model, Policy) else max(1.0, float(plain_NT.abs().max()))
            half = HALF_PRECISION_MAX_ROUNDINGS * torch.finfo(torch.bfloat16).eps
            if difference.largest > ROUNDING.get(model.backbone.compute_dtype, half) * scale:
                return check.failed(
                    f"{difference.origin}: {words}, {_score_name(model)} differ by {difference.largest:.2g} "
                    "from those of the row alone"
                )
            differences.append(f"{words} {difference.largest:.1g}")
    return check.passed(
        f"{len(batch.origin_N)} answers of {int(batch.length_N.min())} to {int(batch.length_N.max())} tokens "
        f"against transformers on each alone, largest difference: {', '.join(differences)}"
    )


def _with_more_completions(examples: Sequence[Example], answers: int) -> list[Example]:
    """Each row with completions of others where it has too few; not all of them of one length."""
    extended: list[Example] = []
    for n, example in enumerate(examples):
        others = [example.completions[0] for example in (*examples[n + 1 :], *examples[: n + 1])]
        missing = max(0, answers - len(example.completions))
        extended.append(replace(example, completions=(*example.completions, *others[:missing])))
    lengths = {
        len(example.prompt) + len(answer.ids) for example in extended for answer in example.completions
    }
    if len(lengths) > 1:
        return extended
    # Rows that are all of one length would be padded nowhere.
    first, *rest = extended
    first_completion, *other_completions = first.completions
    longer = replace(first_completion, ids=first_completion.ids * 2, mask=first_completion.mask * 2)
    return [replace(first, completions=(longer, *other_completions)), *rest]


def _first_row_loss(subject: check.PreflightSubject) -> str:
    """The loss of the shortest rows, where it is of given rows and so known before anything is drawn."""
    job = subject.job
    if job is None or subject.trial is not None or not subject.trained:
        return ""
    with torch.no_grad():
        results = [job.objective(microbatch) for microbatch in job.microbatches_of_step(1, [0])]
    loss = float(values_of([metric for result in results for metric in result.metrics])["loss"])
    return f"; the loss of the first row is {loss:.4f}"


def _device_batch(model: Model, examples: Sequence[Example]) -> TokenBatch:
    return batch_of(examples).to(model.device)


def _model_and_rows(
    subject: check.PreflightSubject, count: int = check.SAMPLE_SIZE
) -> tuple[Model, list[Example]]:
    model, examples = subject.policy or subject.scorer, shortest_examples(subject, count)
    if model is None or not examples:
        raise check.NotApplicableError("there is no model that learns, or no row to look at")
    return model, examples


def _score_name(model: Model) -> str:
    return "log-probs" if isinstance(model, Policy) else "rewards"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CHECKS = (
    check.Check(name="dropout", run=check_dropout, at_start=True),
    check.Check(name="base-loss", run=check_base_loss, at_start=True),
    check.Check(name="weights", run=check_weights, at_start=True),
    check.Check(name="initial-kl", run=check_reference_agrees),
    check.Check(name="padding-side", run=check_padding_sides),
    check.Check(name="packing", run=check_packing),
    check.Check(name="shared-prompt", run=check_prompt_sharing),
    check.Check(name="bf16", run=check_bf16),
)
