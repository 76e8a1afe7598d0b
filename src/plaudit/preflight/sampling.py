"""Checks of the sampler: it draws from the policy that learns, as it was told to, and its tokens are trained.

Whether answers end where they should is tried by making every token that ends one certain, one after another.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.engine.distributed import is_sharded
from plaudit.errors import UserError
from plaudit.models.backbone import head_of
from plaudit.models.policy import Policy
from plaudit.preflight import exact_sampling
from plaudit.preflight.check import (
    Check,
    NotApplicableError,
    PreflightSubject,
    Result,
    failed,
    not_applicable,
    passed,
    warned,
)
from plaudit.preflight.samples import (
    LOW_TEMPERATURE,
    MAX_SCANNED_ROWS,
    NO_PROMPT,
    SHARDED,
    SamplePrompt,
    describe_origins,
    shortest_prompts,
    special_token_ids,
)
from plaudit.rollouts import local
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, Sampler, SamplingSettings

MAX_FORCED_TOKENS = 3
FORCING_BIAS = 1e4


def check_stops(subject: PreflightSubject) -> Result:
    """Every token that ends an answer is made certain for a moment, by a bias on the model's head.

    The answer must end right there and count as ended. The tokens are those that the model's own files and
    its tokenizer name, and the one that trained answers end with: each a token of its own, no word of the
    vocabulary, and none that stands in the middle of an answer of the first rows. An ordinary token is made
    certain first: at it an answer must go on.
    """
    policy, rows = subject.policy, shortest_prompts(subject, 1, MAX_FORCED_TOKENS)
    if policy is None or not rows:
        return not_applicable("there is no policy, or no prompt of the first rows can be asked")
    if is_sharded(policy):
        return not_applicable(SHARDED)
    try:
        sampler = subject.sampler or LocalSampler.from_policy(policy, subject.encoder)
    except UserError as error:
        return not_applicable(str(error))
    ordinary, ends = _ordinary_token(subject, rows[0]), _declared_end_tokens(subject)
    rollout = _forced_rollout(subject, sampler, rows[0], ordinary)
    if rollout.ids[:1] != (ordinary,):
        return not_applicable("the sampler has a head of its own, in which no token can be made certain")
    if rollout.answer.ended:
        return failed(f"answers end at {_token_name(subject, ordinary)}, which is no end of anything")
    faults = (_misplaced_end(subject, end) or _stop_fault(subject, sampler, rows[0], end) for end in ends)
    fault = next(filter(None, faults), None)
    named = ", ".join(_token_name(subject, end) for end in ends)
    return passed(f"answers end at {named}, and at no other token") if fault is None else failed(fault)


def _misplaced_end(subject: PreflightSubject, end: int) -> str | None:
    """What is wrong with an end that stands within answers, or that is a word; None where nothing is."""
    for example in subject.trained[:MAX_SCANNED_ROWS]:
        for answer in example.completions:
            inside = zip(answer.ids, answer.mask, answer.mask[1:], strict=False)
            if any(token == end and learnt and goes_on for token, learnt, goes_on in inside):
                return (
                    f"{_token_name(subject, end)} is declared as an end and stands in the middle of an "
                    f"answer of {example.origin}: what is drawn would be cut there and count as ended"
                )
    tokenizer = subject.encoder.info.tokenizer
    trained = subject.encoder.stop_ids[:1] if subject.encoder.chat_format is not None else ()
    if end in (*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *trained):
        return None
    return f"{_token_name(subject, end)} is declared as an end, and it is an ordinary token of the vocabulary"


def _stop_fault(subject: PreflightSubject, sampler: Sampler, row: SamplePrompt, end: int) -> str | None:
    rollout = _forced_rollout(subject, sampler, row, end)
    if rollout.ids == (end,) and rollout.answer.ended:
        return None
    counts = "counts as ended" if rollout.answer.ended else "counts as cut"
    return (
        f"{_token_name(subject, end)} is declared as an end, and an answer that begins with it {counts}, "
        f"with {len(rollout.ids)} of {MAX_FORCED_TOKENS} possible tokens"
    )


def _declared_end_tokens(subject: PreflightSubject) -> list[int]:
    policy, info = exact_sampling.require_policy(subject), subject.encoder.info
    embeddings: Any = policy.base.get_output_embeddings()
    vocabulary_size, folder = embeddings.weight.shape[0], Path(str(policy.base.name_or_path))
    candidates = [*subject.encoder.stop_ids, info.tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        facts: Any = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        ends = facts.get("eos_token_id")
        candidates += ends if isinstance(ends, list) else [ends]
    return list(dict.fromkeys(end for end in candidates if isinstance(end, int) and end < vocabulary_size))


def _ordinary_token(subject: PreflightSubject, row: SamplePrompt) -> int:
    """The unlikeliest token that ends nothing: no sampler says it by itself."""
    reserved = sorted({*_declared_end_tokens(subject), *special_token_ids(subject)})
    # One token stands in for an answer: only the logits behind the prompt are read.
    logits_V = exact_sampling.transformers_logits(subject, row.prompt, row.prompt.prompt[:1])[0]
    # Infinite, so that argmin cannot choose what is reserved.
    logits_V[[token for token in reserved if token < len(logits_V)]] = math.inf
    # No further than the tokenizer goes: rows that pad the embedding have no text.
    return int(logits_V[: len(subject.encoder.info.tokenizer)].argmin())


def _forced_rollout(subject: PreflightSubject, sampler: Sampler, row: SamplePrompt, token: int) -> Rollout:
    settings = SamplingSettings(temperature=0, max_tokens=MAX_FORCED_TOKENS)
    with force_token(exact_sampling.require_policy(subject), token):
        return sampler.generate([row.prompt.shown], settings)[0][0]


@contextmanager
def force_token(policy: Policy, token: int) -> Iterator[None]:
    """The head predicts this token and no other, whatever the hidden state, while the context lasts."""
    # By its bias, which wins at any hidden state; the weight may be tied to the input embedding.
    head, dtype = head_of(policy.base).layer, policy.backbone.compute_dtype
    bias_V = torch.full((head.weight.shape[0],), -FORCING_BIAS, dtype=dtype, device=head.weight.device)
    bias_V[token] = FORCING_BIAS
    original_bias: Any = head.bias
    head.bias = nn.Parameter(bias_V, requires_grad=False)
    try:
        yield
    finally:
        head.bias = original_bias


def _token_name(subject: PreflightSubject, token: int) -> str:
    return f"{subject.encoder.info.tokenizer.convert_ids_to_tokens(token)!r} ({token})"


PROMPTS = 4
MAX_TOKENS = 12
FIRST_TOKEN_SAMPLES, REPEATED_SAMPLES = 512, 64
"""First tokens that are drawn, and how many of them again, with the same seed and with another."""
MIN_P_VALUE = 1e-6
"""Below it a p-value speaks against the sampler: one sound run in a million is suspected."""
HIGH_TEMPERATURE = 100.0
"""A temperature at which every token is about as likely as any other."""


def check_sampler_logps(subject: PreflightSubject) -> Result:
    """A few prompts are answered with the run's own sampling settings.

    Each answer then goes through transformers' own forward pass, alone, and its log-probs are computed again,
    among all tokens and among those that temperature, top-k, top-p and min-p leave.
    """
    sampler, rows = _sampler_and_prompts(subject, PROMPTS)
    settings = _short_settings(subject, MAX_TOKENS)
    drawn = _drawn_answers(sampler, rows, settings)
    limit = 4 * exact_sampling.logprob_tolerance(subject, settings)
    errors: list[exact_sampling.LogprobErrors] = []
    for row, rollout in drawn:
        if not len(rollout.ids) == len(rollout.logp) == len(rollout.whole_logp):
            return failed(
                f"{describe_origins([row])}: {len(rollout.ids)} tokens with {len(rollout.logp)} log-probs"
            )
        item = _recomputed_errors(subject, row, rollout, settings)
        if item.excluded_tokens:
            return failed(
                f"{describe_origins([row])}: {item.excluded_tokens} tokens were drawn that "
                f"{_settings_text(settings)} leaves out"
            )
        errors.append(item)
    result = _logprob_result(errors, rows, limit)
    temperature = subject.sampling.temperature
    if not result.holds or subject.trial is None or temperature >= LOW_TEMPERATURE:
        return result
    return warned(
        f"{result.details}; at the temperature {temperature:g} all answers to a prompt are one answer, "
        "and there is nothing to learn from: 0.7 to 1 is usual"
    )


def check_sampler_fresh(subject: PreflightSubject) -> Result:
    """Every weight that learns is moved a little, adapters included, until log-probs change clearly.

    Answers are drawn then, and what the sampler says of their tokens is compared with what the moved policy
    says of them in transformers' own forward pass. The weights are put back bit by bit.
    """
    sampler, rows = _sampler_and_prompts(subject, PROMPTS // 2)
    settings = _short_settings(subject, MAX_TOKENS)
    limit = 4 * exact_sampling.logprob_tolerance(subject, settings)
    with exact_sampling.perturbed_weights(subject, rows[0].prompt.prompt, min_shift=2 * limit) as shift:
        drawn = _drawn_answers(sampler, rows, settings)
        new = [_recomputed_errors(subject, row, rollout, settings) for row, rollout in drawn]
    if shift < 2 * limit:
        return failed(f"weights that learn were moved and log-probs changed by {shift:.2g} nats only")
    # The weights are back by now: what would the old policy have said of the same tokens?
    old = [_recomputed_errors(subject, row, rollout, settings) for row, rollout in drawn]
    after, before = (torch.cat([rollout.whole_T for rollout in many]) for many in (new, old))
    details = (
        f"after a move of {shift:.2g} nats a token the sampler is {float(after.mean()):.2g} from the moved "
        f"policy and {float(before.mean()):.2g} from the one before, over {len(after)} tokens"
    )
    if _within_tolerance(after, limit):
        return passed(details)
    stale = _within_tolerance(before, limit)
    return failed(f"{details}: it draws with {'weights of before' if stale else 'the weights of neither'}")


def check_sampled_is_trained(subject: PreflightSubject) -> Result:
    """Answers are drawn at a temperature at which tokens are all about as likely.

    Hardly any such answer comes out the same when its text is made into tokens again. What is trained must
    be the drawn tokens themselves, every one of them, behind the prompt that the encoder makes.
    """
    sampler, rows = _sampler_and_prompts(subject, PROMPTS)
    settings = SamplingSettings(
        temperature=HIGH_TEMPERATURE, max_tokens=MAX_TOKENS, seed=subject.sampling.seed
    )
    groups = sampler.generate([row.prompt.shown for row in rows], settings, n=4)
    for row, group in zip(rows, groups, strict=True):
        example = local.example_from_rollouts(row.prompt, group)
        for rollout, trained in zip(group, example.completions, strict=True):
            if rollout.prompt != row.prompt.prompt or example.prompt != row.prompt.prompt:
                return failed(
                    f"{describe_origins([row])}: the sampler was shown other prompt tokens than are trained"
                )
            if trained.ids != rollout.ids or not all(trained.mask) or len(rollout.logp) != len(rollout.ids):
                return failed(
                    f"{describe_origins([row])}: {len(rollout.ids)} tokens were drawn, {len(rollout.logp)} "
                    f"have a log-prob, {sum(trained.mask)} are trained, and they are not the same ones"
                )
    sampled_ids = [rollout.ids for group in groups for rollout in group]
    generator = torch.Generator().manual_seed(0)
    random_ids = [
        torch.randint(len(subject.encoder.info.tokenizer), (len(ids),), generator=generator).tolist()
        for ids in sampled_ids
    ]
    same, random_same = (_roundtrip_count(subject, answers) for answers in (sampled_ids, random_ids))
    details = (
        f"of {len(sampled_ids)} answers {len(sampled_ids) - same} would have other tokens if they "
        "were made of their text"
    )
    if same == len(sampled_ids) and 2 * random_same <= len(sampled_ids):
        return failed(
            f"{details}, and of as many that are random tokens {len(sampled_ids) - random_same}: the "
            "sampler hands on tokens that were made of text, not those that were drawn"
        )
    return passed(details)


def check_sampling_distribution(subject: PreflightSubject) -> Result:
    """The first token of an answer is drawn a few hundred times, with a fixed seed.

    Its frequencies are held against the probabilities of transformers' own forward pass under the run's
    sampling settings (Pearson's chi-square). The same seed must give the same answers again, and
    another seed others.
    """
    sampler, rows = _sampler_and_prompts(subject, 1)
    if subject.sampling.greedy:
        return not_applicable("nothing is left to chance at temperature 0")
    [row], settings = rows, _short_settings(subject, 1)
    first, repeated, reseeded = (
        torch.tensor([rollout.ids[0] for rollout in group])
        for seed, draws in ((1, FIRST_TOKEN_SAMPLES), (1, REPEATED_SAMPLES), (2, REPEATED_SAMPLES))
        for group in sampler.generate([row.prompt.shown], replace(settings, seed=seed), n=draws)
    )
    # A seed means the same answers, however many are drawn with it.
    if not torch.equal(first[:REPEATED_SAMPLES], repeated):
        return failed(f"{describe_origins(rows)}: the same seed gave other answers")
    p_V = exact_sampling.sampling_probabilities(
        exact_sampling.transformers_logits(subject, row.prompt, row.prompt.prompt[:1]), settings
    )
    test = exact_sampling.chi_square_test(torch.bincount(first, minlength=len(p_V)), p_V)
    details = (
        f"{FIRST_TOKEN_SAMPLES} first tokens of {describe_origins(rows)} in {test.cells} cells: chi-square "
        f"{test.chi_square:.1f}, p {test.p:.2g}"
    )
    if test.p < MIN_P_VALUE:
        return failed(f"{details}: they are not drawn as {_settings_text(settings)} says")
    # Σp² is the chance that two draws agree; its n-th power, that all of them do by luck.
    log_match_probability = REPEATED_SAMPLES * float(p_V.square().sum().log10())
    if torch.equal(repeated, reseeded) and log_match_probability < math.log10(MIN_P_VALUE):
        return failed(f"{describe_origins(rows)}: another seed gave the very same {REPEATED_SAMPLES} answers")
    return passed(details)


def _sampler_and_prompts(subject: PreflightSubject, count: int) -> tuple[Sampler, list[SamplePrompt]]:
    if subject.sampler is None:
        raise NotApplicableError("nothing is learnt from sampled answers")
    rows = shortest_prompts(subject, count, MAX_TOKENS)
    if not rows:
        raise NotApplicableError(NO_PROMPT)
    return subject.sampler, rows


def _short_settings(subject: PreflightSubject, tokens: int) -> SamplingSettings:
    return replace(subject.sampling, max_tokens=min(tokens, subject.sampling.max_tokens))


def _drawn_answers(
    sampler: Sampler, rows: Sequence[SamplePrompt], settings: SamplingSettings
) -> list[tuple[SamplePrompt, Rollout]]:
    groups = sampler.generate([row.prompt.shown for row in rows], settings, n=2)
    return [(row, rollout) for row, group in zip(rows, groups, strict=True) for rollout in group]


def _recomputed_errors(
    subject: PreflightSubject, row: SamplePrompt, rollout: Rollout, settings: SamplingSettings
) -> exact_sampling.LogprobErrors:
    # By the tokens that the sampler says it was shown, which should be the row's.
    prompt = replace(row.prompt, prompt=tuple(rollout.prompt))
    logits_TV = exact_sampling.transformers_logits(subject, prompt, rollout.ids)
    return exact_sampling.logprob_errors(
        logits_TV, rollout, settings, exact_sampling.logprob_tolerance(subject, settings)
    )


def _within_tolerance(gap_T: Tensor, limit: float) -> bool:
    """Single tokens may lie further apart than all of them on average."""
    return bool(gap_T.isfinite().all()) and float(gap_T.max()) <= limit and float(gap_T.mean()) <= limit / 4


def _logprob_result(
    errors: Sequence[exact_sampling.LogprobErrors], rows: Sequence[SamplePrompt], limit: float
) -> Result:
    logp_T, whole_T = (
        torch.cat([getattr(error, name) for error in errors]) for name in ("logp_T", "whole_T")
    )
    among, of_all = (
        f"{float(gap_T.max()):.2g} (mean {float(gap_T.mean()):.2g})" for gap_T in (logp_T, whole_T)
    )
    details = (
        f"over {len(logp_T)} tokens of {2 * len(rows)} answers log-probs differ from transformers' own by up "
        f"to {among} among what can be drawn and by up to {of_all} among all tokens; {limit:.2g} is rounding"
    )
    if _within_tolerance(logp_T, limit) and _within_tolerance(whole_T, limit):
        return passed(details)
    worst = max(
        range(len(errors)), key=lambda n: float(torch.maximum(errors[n].logp_T, errors[n].whole_T).max())
    )
    return failed(f"{details}; the furthest answer is to {describe_origins([rows[worst // 2]])}")


def _settings_text(settings: SamplingSettings) -> str:
    """How tokens are drawn, in words.

    >>> _settings_text(SamplingSettings(top_p=0.9))
    'temperature 1, top-p 0.9'
    """
    parts = [f"temperature {settings.temperature:g}"]
    parts += [f"top-k {settings.top_k}"] if settings.top_k else []
    parts += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    parts += [f"min-p {settings.min_p:g}"] if settings.min_p else []
    return ", ".join(parts)


def _roundtrip_count(subject: PreflightSubject, answers: Sequence[Sequence[int]]) -> int:
    info = subject.encoder.info
    return sum(
        # Without special tokens: a BOS in front would make every answer another one.
        tuple(ids) == tuple(info.tokenizer.encode(info.decode(ids), add_special_tokens=False))
        for ids in answers
    )


CHECKS = (
    Check(name="sampler-logps", run=check_sampler_logps),
    Check(name="sampler-weights", run=check_sampler_fresh),
    Check(name="rollout-tokens", run=check_sampled_is_trained),
    Check(name="stop-tokens", run=check_stops),
    Check(name="exact-sampling", run=check_sampling_distribution),
)
