"""What the model computes, on the user's own short rows: alike however a batch is laid out, and each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.few import few_examples
from plaudit.checks.passes import Model, apart, laid_out, told, told_plainly
from plaudit.checks.subject import Subject
from plaudit.models.attention_rule import PackingError
from plaudit.models.policy import Policy
from plaudit.training.first_look import tolerance as of_log_ratios
from plaudit.training.metrics import values_of
from plaudit.training.preference import Eyes
from plaudit.training.shards import is_sharded

ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-3}
"""How far two ways to compute one number may lie apart: ten thousand roundings; in float64, too, norms are
computed in float32."""
HALF = 50
"""Roundings of half precision that a log-prob may be off: as many as a deep model piles up."""
USUAL = 12
"""Roundings that it may be off on average."""
NO_MODEL = "there is no model that learns, or no row to look at"
"""Why there is nothing to look at."""
DIVIDED = "weights are divided over ranks; look with one process, without torchrun"
"""Why one answer cannot be looked at alone."""


def dropout(subject: Subject) -> Result:
    """The same rows twice, as a model that learns sees them, give the same bits."""
    model = _model(subject)
    examples = few_examples(subject, 2)
    if model is None or not examples:
        return not_applicable(NO_MODEL)
    model.train()
    with torch.no_grad(), subject.products():
        first_NT, second_NT = (told(model, _batch(model, examples)) for _ in range(2))
    off = apart(first_NT, second_NT, _batch(model, examples))
    if off.largest == 0:
        return passed(f"{len(examples)} rows twice while learning: the same to the last bit")
    draws = [name for name, one in model.named_modules() if isinstance(one, nn.Dropout) and one.p > 0]
    who = f"; these draw: {', '.join(draws[:3])}" if draws else ""
    return failed(f"{off.origin}: {_what(model)} of one row differ by {off.largest:.2g} each time{who}")


def at_rest(subject: Subject) -> Result:
    """Before the first step policy and reference say the same of every token."""
    policy, reference = subject.policy, subject.reference
    if policy is None or reference is None:
        return not_applicable("nothing is compared with a reference")
    if not subject.same_reference:
        return not_applicable("the reference is another model than the one that the run begins with")
    examples = few_examples(subject)
    if not examples:
        return not_applicable("there is no row to look at")
    batch = _batch(policy, examples)
    temperature = subject.sampling.temperature if subject.lesson is not None and subject.lesson.draws else 1.0
    policy.eval()
    with torch.no_grad(), subject.products():
        logp_NT = policy.score(batch, temperature=float(temperature)).logp_NT
    ref_NT = reference.logp(examples, batch).to(logp_NT.dtype)
    off = apart(logp_NT, ref_NT, batch)
    log_ratio_M = (logp_NT - ref_NT)[batch.mask_NT]
    kl = float((log_ratio_M.expm1() - log_ratio_M).mean())
    far = float(log_ratio_M.abs().max().exp())
    saw = (
        f"{len(examples)} rows: policy and reference differ by up to {off.largest:.1g} nats a token, the "
        f"ratio is off by {far - 1:.1g}, the KL is {kl:.1g}{_loss(subject)}"
    )
    eyes = Eyes(policy=policy, reference=reference, products=subject.products)
    return passed(saw) if off.largest <= of_log_ratios(eyes) else failed(f"{off.origin}: {saw}")


def left_right(subject: Subject) -> Result:
    """Padding on either side changes nothing."""
    return _as_alone(subject, {"left": "padded on the left", "right": "padded on the right"})


def packing(subject: Subject) -> Result:
    """A row says the same among others as alone."""
    model = _model(subject)
    if model is not None and model.layout != "packed":
        return not_applicable(f"batches of this run are padded on the {model.layout}")
    return _as_alone(subject, {"packed": "packed end to end"})


def sharing(subject: Subject) -> Result:
    """A prompt computed once for all its answers counts as if it had been computed for each."""
    model = _model(subject)
    if model is not None and (model.layout != "packed" or not model.trunk.share_prompts):
        return not_applicable("prompts are computed for each of their answers")
    return _as_alone(subject, {"packed": "packed behind one prompt"}, share=True)


def bf16(subject: Subject) -> Result:
    """The numbers of the run are near those of float32."""
    model = _model(subject)
    examples = few_examples(subject)
    if model is None or not examples:
        return not_applicable(NO_MODEL)
    with subject.products():
        device = model.device.type
        products = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else model.base.dtype
    if products in ROUNDING:
        return not_applicable(f"products are made in {_named(products)}")
    batch = _batch(model, examples)
    model.eval()
    with torch.no_grad():
        exact_NT = told(model, batch)
        with subject.products():
            own_NT = told(model, batch)
    off = apart(own_NT, exact_NT, batch)
    eps = torch.finfo(products).eps
    # A token of 20 nats has logits that are larger by as much, and so are their roundings.
    reach_NT = 1 + exact_NT.abs() / 10
    beyond = float(((own_NT - exact_NT).abs() / reach_NT)[batch.mask_NT].max())
    saw = (
        f"{_named(products)} and {_named(exact_NT.dtype)}: {_what(model)} of {len(batch.origin_N)} answers "
        f"differ by {off.mean:.2g} on average, by up to {off.largest:.2g} ({off.origin})"
    )
    mean_reach = float(reach_NT[batch.mask_NT].mean())
    good = beyond <= HALF * eps and off.mean <= USUAL * eps * mean_reach
    return passed(saw) if good else failed(saw)


def _as_alone(subject: Subject, layouts: dict[Layout, str], *, share: bool = False) -> Result:
    """Each of these layouts against transformers' own pass over one answer at a time."""
    model = _model(subject)
    few = few_examples(subject)
    if model is None or not few:
        return not_applicable(NO_MODEL)
    if is_sharded(model):
        return not_applicable(DIVIDED)
    examples = _of_many(few, answers=2 if share else 1)
    batch = _batch(model, examples)
    model.eval()
    said: list[str] = []
    with torch.no_grad():
        plain_NT = told_plainly(model, examples)
        for layout, words in layouts.items():
            try:
                with laid_out(model, layout, share=share):
                    told_NT = told(model, batch)
            except PackingError as error:
                return failed(f"this model cannot be {words}: {error}")
            off = apart(told_NT, plain_NT, batch)
            if off.largest > _tolerance(model, plain_NT):
                return failed(
                    f"{off.origin}: {words}, {_what(model)} differ by {off.largest:.2g} from those of "
                    "the row alone"
                )
            said.append(f"{words} {off.largest:.1g}")
    return passed(
        f"{len(batch.origin_N)} answers of {int(batch.length_N.min())} to {int(batch.length_N.max())} tokens "
        f"against transformers on each alone, largest difference: {', '.join(said)}"
    )


def _of_many(examples: Sequence[Example], answers: int) -> list[Example]:
    """Each row with answers of others beside its own where it has too few; not all of them of one length."""
    found: list[Example] = []
    for n, example in enumerate(examples):
        others = [one.completions[0] for one in (*examples[n + 1 :], *examples[: n + 1])]
        missing = max(0, answers - len(example.completions))
        found.append(replace(example, completions=(*example.completions, *others[:missing])))
    lengths = {len(one.prompt) + len(answer.ids) for one in found for answer in one.completions}
    if len(lengths) > 1:
        return found
    # Rows that are all of one length would be padded nowhere.
    first, *rest = found
    own, *more = first.completions
    longer = replace(own, ids=own.ids * 2, mask=own.mask * 2)
    return [replace(first, completions=(longer, *more)), *rest]


def _tolerance(model: Model, plain_NT: Tensor) -> float:
    """Rewards have a scale of their own."""
    scale = 1.0 if isinstance(model, Policy) else max(1.0, float(plain_NT.abs().max()))
    return ROUNDING.get(model.base.dtype, HALF * torch.finfo(torch.bfloat16).eps) * scale


def _loss(subject: Subject) -> str:
    """The loss of the shortest rows, where it is of given rows and so known before anything is drawn."""
    lesson = subject.lesson
    if lesson is None or lesson.draws or not subject.trained:
        return ""
    with torch.no_grad():
        terms = [lesson.objective(piece) for piece in lesson.pieces(1, [0])]
    loss = float(values_of([one for term in terms for one in term.metrics])["loss"])
    return f"; the loss of the first row is {loss:.4f}"


def _batch(model: Model, examples: Sequence[Example]) -> TokenBatch:
    return batch_of(examples).to(model.device)


def _model(subject: Subject) -> Model | None:
    return subject.policy or subject.scorer


def _what(model: Model) -> str:
    return "log-probs" if isinstance(model, Policy) else "rewards"


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CHECKS = (
    Check(
        name="dropout",
        proves="While it learns, the model says the same of the same row each time: nothing in it is drawn.",
        matters="Dropout makes log-probs a matter of luck: a ratio of policy to reference is then noise, "
        "and DPO's loss does not begin at ln 2. plaudit sets the rates of config.json to 0 when it loads a "
        "model, but a layer may have a rate of its own. TRL and LLaMA-Factory had it on in some trainers: "
        "TRL#2042, TRL#3234, LlamaFactory#10779.",
        mend="Set the dropout of the layers that are named to 0. If none is named, the model draws inside "
        "its attention or in code of its own: look for dropout or noise there.",
        look=dropout,
        at_start=True,
    ),
    Check(
        name="at-rest",
        proves="Before the first step policy and reference say the same of every token: ratio 1, KL 0.",
        matters="What a policy has learnt is read off its distance from the reference. If the two begin "
        "apart, the KL penalty pulls towards another model and DPO's loss begins anywhere but at ln 2; "
        "a negative or large KL at step 0 is among the oldest questions: TRL#235, TRL#736, TRL#1161.",
        mend="Take the reference from the folder of --model, delete kept log-probs of another model "
        "(--reference.cache), and look at dropout first if that check fails too.",
        look=at_rest,
    ),
    Check(
        name="left-right",
        proves="Log-probs (of a reward model: rewards) are those of the row alone, whichever side a batch "
        "is padded on.",
        matters="Sampling pads on the left, training often on the right. Where a model sees the padding, or "
        "counts positions from it, sampler and trainer disagree about the same tokens, and a reward is "
        "read at the wrong one: OpenRLHF#217, TRL#6800, TRL#2778.",
        mend="Update transformers: the model's code ignores the attention mask or the position ids. Until "
        "then use --memory.layout with the side that agrees, or the default, packed.",
        look=left_right,
    ),
    Check(
        name="packing",
        proves="Log-probs (of a reward model: rewards) of rows packed end to end are those of each "
        "row alone.",
        matters="Packing saves the padding. If one row can see the row before it, everything that is learnt "
        "is learnt of the wrong text, and the loss looks only a little better than it should: TRL#1230, "
        "TRL#3067, unsloth#1207, LlamaFactory#2289.",
        mend="Use --memory.layout right, and report the model: its attention does not keep rows apart.",
        look=packing,
    ),
    Check(
        name="sharing",
        proves="A prompt that is computed once for all its answers gives the log-probs that it gives when it "
        "is computed for each.",
        matters="Comparisons and groups have several answers to one prompt, and computing it once is much "
        "cheaper (asked for in TRL#3549). If an answer could see another one, chosen and rejected would "
        "know of each other, as packed rows did in TRL#1230.",
        mend="Use --memory.layout right, which computes each answer with a prompt of its own.",
        look=sharing,
    ),
    Check(
        name="bf16",
        proves="In the numbers that the run makes its products in, log-probs (or rewards) are near those of "
        "float32.",
        matters="bfloat16 has three digits. A model whose states are large, or that was made for float16, "
        "says something else in it, and a sampler that uses other numbers than the trainer drifts away "
        "from it even at a learning rate of 0: open-instruct#1473, NeMo-RL#793.",
        mend="Train with --dtype float32, or look for the layer whose states are very large.",
        look=bf16,
    ),
)
"""Checks of what is computed."""
