"""Preference data: pairs, or single answers labelled good or bad, from records to encoded rows.

Rows come in parts by prompt, in the order in which the file has them. Before training the data is diagnosed
for length bias and for the balance of good and bad answers.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from plaudit.data.records import Comparison, Demonstration, Ranking, Rating, Record
from plaudit.data.transforms import prefers_nothing
from plaudit.errors import UserError
from plaudit.files.stored import filtered, mapped
from plaudit.methods.data import EncodedData, Row
from plaudit.methods.preference.config import StageSettings
from plaudit.methods.preference.row import AnyPreferenceAlgorithm, PreferenceAlgorithm, UnpairedAlgorithm
from plaudit.tokens import preferences
from plaudit.tokens.batch import Example, extras_digest
from plaudit.tokens.encode import EncodedRows, Encoder, RefusedRow

LENGTH_RATIO_WARNING = 1.25
"""A note is printed when preferred completions are this many times as long as the others."""
BALANCED_WEIGHT_RATIO = (1.0, 4 / 3)
"""The range for the weight of good answers per weight of bad ones (Ethayarajh et al. 2024, section 4.1)."""


def data_diagnostics(rows: Sequence[preferences.JudgedRow], row: AnyPreferenceAlgorithm) -> tuple[str, ...]:
    note = _balance_note(rows, row) if isinstance(row, UnpairedAlgorithm) else _length_note(rows, row)
    return () if note is None else (note,)


def _length_note(rows: Sequence[preferences.JudgedRow], row: PreferenceAlgorithm) -> str | None:
    """A note where length gives the preferred completion away; None for rows that charge for length."""
    pairs = [
        tuple(sum(row.example.completions[place].mask) for place in (first, second))
        for row in rows
        for first, second, probability in preferences.row_pairs(row)
        if probability > 0.5
    ]
    if not pairs or row.length_alpha:
        return None
    chosen, rejected = (fmean(pair[side] for pair in pairs) for side in (0, 1))
    if not chosen > LENGTH_RATIO_WARNING * rejected:
        return None
    return (
        f"preferred answers have {chosen:.0f} tokens on average and the others {rejected:.0f}: the policy "
        "will learn to be long as well. r-dpo charges for length; ld-dpo, dpo-norm and simpo take it out of "
        "log-probs"
    )


def _balance_note(rows: Sequence[preferences.JudgedRow], row: UnpairedAlgorithm) -> str | None:
    """A note where good and bad answers do not weigh about the same."""
    labels = [label for row in rows for label in preferences.row_labels(row)]
    good = sum(labels)
    bad = len(labels) - good
    desirable, undesirable = (
        row.settings.get(name, 1.0) for name in ("desirable_weight", "undesirable_weight")
    )
    low, high = BALANCED_WEIGHT_RATIO
    if not good or not bad:
        kind = "good" if good else "bad"
        return f"all {len(labels):,} answers are {kind}: the policy learns nothing about what to do instead"
    ratio = desirable * good / (undesirable * bad) if undesirable else float("inf")
    if low <= ratio <= high or not desirable:
        return None
    middle = (low + high) / 2
    advice = (
        f"--desirable-weight {middle * undesirable * bad / good:.2g}"
        if ratio < low
        else f"--undesirable-weight {desirable * good / (middle * bad):.2g}"
    )
    return (
        f"{good:,.0f} good answers and {bad:,.0f} bad ones: good ones weigh {ratio:.2g} times as much "
        f"altogether; between 1 and 1⅓ is usual: {advice}"
    )


ADVICE_BY_RECORD = {
    "Prompt": "a prompt without answers: sample answers and have them judged first",
    "Demonstration": "a demonstration, and nobody compared it with another answer: `plaudit train sft` "
    "learns from such rows",
    "Steps": "a solution with labelled steps: `plaudit train reward` learns from such rows",
}
"""What to do with records that hold no preference, by their type."""


def preference_encoder(
    algorithm: AnyPreferenceAlgorithm,
) -> Callable[[Sequence[Record], Encoder, int], EncodedData[preferences.JudgedRow]]:
    """The function that encodes an algorithm's rows; sorted batches want labels that are certain."""
    if isinstance(algorithm, UnpairedAlgorithm):
        return partial(_encode_thumbs, algorithm.name)
    return partial(_encode_pairs, algorithm)


def _encode_pairs(
    algorithm: PreferenceAlgorithm, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[preferences.JudgedRow]:
    name, hard = algorithm.name, not {"sorted_batch", "changed"}.isdisjoint(algorithm.needs)
    crop = algorithm.settings["crop"] if "changed" in algorithm.needs else None
    # Data such as UltraFeedback gives a ranking and ratings of one row: twice learnt it weighs double.
    rated = any(isinstance(record, Rating) for record in records)
    compared = {record.origin for record in records if rated and isinstance(record, Comparison | Ranking)}
    used = filtered(records, lambda record: not (isinstance(record, Rating) and record.origin in compared))
    # A tie has no place in an order of gaps, and is no fault of the rows.
    sorts = filtered(used, lambda record: not (hard and prefers_nothing(record)))
    required = mapped(sorts, partial(_require_pair, name))
    encoded = preferences.encode_judged(required, encoder, max_tokens, crop)
    encoding = _refuse_uninformative(encoded, hard=hard)
    rankings = sum(isinstance(row.judgement, preferences.RankingLabel) for row in encoding.examples)
    notes: list[str] = []
    if len(used) < len(records):
        notes.append(f"{len(records) - len(used):,} ratings left out: their rows are ranked too")
    if len(sorts) < len(used):
        notes.append(
            f"{len(used) - len(sorts):,} ties left out: {name} sorts pairs by which answer is better"
        )
    if crop is not None and (words := sum(row.changed is None for row in encoding.examples)):
        notes.append(
            f"{words:,} rows show no picture, or rank answers: of them {name} learns as DPO with an anchor"
        )
    if rankings:
        taken = "each is learnt whole, and counts"
        if algorithm.ranking_loss is None:
            taken = "all pairs of a ranking together count"
        notes.append(f"{rankings:,} rankings: {taken} as much as one comparison")
    return EncodedData(encoding=encoding, notes=tuple(notes))


def _require_pair(name: str, record: Record) -> Comparison | Ranking:
    if isinstance(record, Comparison | Ranking):
        return record
    if isinstance(record, Rating):
        label = "a thumb" if record.thumb else "a rating"
        raise UserError(
            f"{record.origin}: this row is {label} of one answer, and {name} learns from two answers to one "
            "prompt. Use kto or bco, which learn from single thumbs, or give comparisons or rankings"
        )
    raise UserError(f"{record.origin}: this row is {_advice(record)}")


def _encode_thumbs(
    name: str, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[preferences.JudgedRow]:
    encoded = preferences.encode_judged(mapped(records, partial(_require_thumb, name)), encoder, max_tokens)
    encoding = _refuse_uninformative(encoded, hard=False)
    pairs = sum(isinstance(row.judgement, preferences.PairLabel) for row in encoding.examples)
    note = (
        f"{pairs:,} comparisons: {name} learns from single answers, so each became two of them, the "
        "preferred one good and the other bad"
    )
    return EncodedData(encoding=encoding, notes=(note,) if pairs else ())


def _require_thumb(name: str, record: Record) -> Comparison | Rating:
    if isinstance(record, Comparison) or (isinstance(record, Rating) and record.thumb):
        return record
    if isinstance(record, Rating):
        raise UserError(
            f"{record.origin}: this row is a rating on a scale, and {name} learns from answers that are good "
            "or bad: say which points are good by turning ratings into thumbs (a label of true or false)"
        )
    if isinstance(record, Ranking):
        raise UserError(
            f"{record.origin}: this row is a ranking, and {name} learns from answers that are good or bad: "
            "use dpo or another algorithm of pairs, or say which ranks are good by giving thumbs"
        )
    unlabelled = " (where a field says whether the answer is good, name it: --columns label=FIELD)"
    hint = unlabelled if isinstance(record, Demonstration) else ""
    raise UserError(f"{record.origin}: this row is {_advice(record)}{hint}")


def _advice(record: Record) -> str:
    return ADVICE_BY_RECORD.get(type(record).__name__, "no judgement of an answer")


def _refuse_uninformative(
    encoding: EncodedRows[preferences.JudgedRow], *, hard: bool
) -> EncodedRows[preferences.JudgedRow]:
    """The encoding without rows that teach nothing; these are refused with their reason."""
    refused = list(encoding.refused)

    def informs(row: preferences.JudgedRow) -> bool:
        reason = _refusal_reason(row, hard=hard)
        if reason is not None:
            refused.append(RefusedRow(origin=row.origin, reason=reason))
        return reason is None

    usable = filtered(encoding.examples, informs)
    return EncodedRows(examples=usable, refused=tuple(refused), notes=encoding.notes)


def _refusal_reason(row: preferences.JudgedRow, *, hard: bool) -> str | None:
    # By tokens and what is shown beside them: unlike texts may be normalised to the same ids.
    completions = [
        (answer.ids, extras_digest(row.example.completion_extras([k]), ("completion",)))
        for k, answer in enumerate(row.example.completions)
    ]
    if len(set(completions)) < len(completions):
        return "two answers are the same tokens, so there is nothing to prefer"
    if not all(any(answer.mask) for answer in row.example.completions):
        return "an answer has no token that the model would write"
    label = row.judgement
    if hard and isinstance(label, preferences.PairLabel) and 0 < label.probability < 1:
        return (
            f"the label is {label.probability:g}, and this loss compares answers in a way for which labels "
            "are certain: leave such rows out, or use dpo"
        )
    return None


def mismatched_examples(
    rows: Sequence[preferences.JudgedRow],
    donors: Sequence[preferences.JudgedRow],
    seed: int,
    truncate: Callable[[Example], Example] = lambda example: example,
) -> dict[Example, Example]:
    """For each row one completion of another row whose prompt differs; deterministic in the seed.
    ``truncate`` makes room where a long prompt meets a long answer."""
    rng = random.Random(f"{seed}/strangers")
    if len({donor.prompt_id for donor in donors}) < 2:
        raise UserError(
            "all rows have the same prompt, and the loss measures from answers to other prompts: give rows "
            "of several prompts, or use apo-zero-unpaired or bco, which do not"
        )
    mismatched: dict[Example, Example] = {}
    for row in rows:
        other = rng.choice(donors)
        # This ends, because at least two prompts were found above.
        while other.prompt_id == row.prompt_id:
            other = rng.choice(donors)
        answer = rng.choice(range(len(other.example.completions)))
        mismatched[row.example] = truncate(row.example.with_completions_of(other.example, [answer]))
    return mismatched


def rows_of_part(rows: Sequence[Row], stages: StageSettings) -> Sequence[Row]:
    """The rows of one part; those with the same prompt stay together."""
    if stages.part is None:
        return rows
    prompts = list(dict.fromkeys(row.prompt_id for row in rows))
    if len(prompts) < stages.parts:
        raise UserError(f"stages.parts: {stages.parts} parts of {len(prompts)} prompts leave some empty")
    # Both ends by one formula: the end of a part is the start of the next, so no prompt is lost.
    first, end = (round(len(prompts) * n / stages.parts) for n in (stages.part, stages.part + 1))
    part_prompts = set(prompts[first:end])
    return filtered(rows, lambda row: row.prompt_id in part_prompts)
