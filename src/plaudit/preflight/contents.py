"""Checks of what the rows say: what a model would learn besides what was meant.

Answers that break off, letters read in the wrong encoding, answers that stand in their prompt, a word that
gives the preferred side away, preferences that no words explain, control tokens among somebody's words,
prompts that say nothing. Each is counted in one pass over the rows.
"""

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from plaudit.data.records import Prompt, Record, Text, answers_of, plain_text, user_turn, words_of
from plaudit.errors import UserError
from plaudit.evaluation.stats import wilson_interval
from plaudit.preflight import check, data
from plaudit.preflight.samples import answers_in_row
from plaudit.preflight.tokenization import abbreviate
from plaudit.tokens.encode import Encoder

MIN_WORDS = 8
"""Words that an answer has at least where its end, or its place in the prompt, says something."""
MAX_CUT_SHARE = 0.5
"""Above it breaking off is what the rows teach; single lists and titles end without a mark as well."""
MAX_COPIED_SHARE = 0.5
"""Above it copying is what the rows teach; a few answers are rightly quoted from what was asked."""
FEW_COPIED_SHARE = 0.1
MAX_TEMPLATED_SHARE = 0.5
"""Above it control tokens are no accident: the rows have been through a template already."""
_BROKEN_OFF = re.compile(r"[^\W_][,;:\-–—]?$|[,\-–—]$")
MAX_GARBLED_SHARE = 0.5
"""Above it wrong letters are what the rows teach."""
MIN_FITTED_PAIRS, MAX_FITTED_PAIRS = 300, 1000
"""How many pairs a baseline needs to say something, and how many it reads."""
HASHED_WORDS = 2048
_MIN_SUREST_ACCURACY = 0.7
_RIDGE = 3.0
# UTF-8 read as Latin-1 or Windows-1252, and what nothing could decode.
_MISREAD = re.compile(r"[ÂÃ][\u0080-\u00bf\u0152-\u2122]|â[\u0080\u20ac][\u0080-\u00bf\u0152-\u2122]|\ufffd")
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-f]+|amp|lt|gt|quot|apos|nbsp);", re.IGNORECASE)
_WORD = re.compile(r"\w+|[^\w\s]")
# In a text on one line; and tags that only lay words out, as pages of the web have them.
_ESCAPED = re.compile(r"\\[nr](?=\\[nrt]|[ A-Z]|$)")
_LAYOUT_TAG = re.compile(r"<(?:p|br|div|span)\b[^<>]*>", re.IGNORECASE)
# What other families' templates write and no tokenizer here calls its own.
_FOREIGN_TOKENS = (
    "[INST]", "[/INST]", "<<SYS>>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "<|eot_id|>", "<|start_header_id|>", "<start_of_turn>", "<end_of_turn>",
)  # fmt: skip
_TAG = re.compile(r"</?[a-z]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(\s|$)")


def check_cut_answers(subject: check.PreflightSubject) -> check.Result:
    """Counts answers of eight words and more that end in a letter or a comma although they have sentences
    with marks at their ends: answers that a limit of tokens has cut. It fails when more than half of at least
    30 do."""
    if subject.sampler is not None and not subject.trained:
        return check.not_applicable("the answers of rows are not learnt: others are drawn")
    cut: list[tuple[str, str]] = []
    looked = 0
    for record in subject.records:
        for answer in _learnt_answers(record):
            text = plain_text(answer).rstrip()
            if len(text.split()) < MIN_WORDS or not _SENTENCE_END.search(text) or _garbled_at(text):
                continue
            looked += 1
            # A short last line without a mark is a line of its own: a result, a name, a source.
            last_line = text.rpartition("\n")[2]
            is_line = last_line != text and len(last_line.split()) < MIN_WORDS
            if _BROKEN_OFF.search(text) and (not is_line or _SENTENCE_END.search(last_line)):
                cut.append((record.origin, text))
    if not looked:
        return check.not_applicable("no answer is long enough, with marks at the ends of its sentences")
    details = f"{len(cut):,} of {looked:,} answers with sentences break off in one"
    if cut:
        details += f"; {cut[0][0]} ends in {abbreviate(cut[0][1][-60:])}"
    return data.verdict_on_share(details, len(cut), looked, MAX_CUT_SHARE)


def check_garbled_text(subject: check.PreflightSubject) -> check.Result:
    """Counts rows with letters that were read in another encoding than they were written in, signs that could
    not be read at all, marks of HTML where a sign is meant, or line ends that were escaped. It fails when
    more than half of at least 30 rows have some, and warns of fewer, or where half have tags that lay text
    out."""
    rows = [
        (record.origin, text)
        for record in subject.records
        for text in [" ".join(map(plain_text, (record.prompt, *answers_in_row(record))))]
    ]
    garbled = [(origin, match) for origin, text in rows if (match := _garbled_at(text))]
    if not garbled:
        laid_out = [match[0] for _, text in rows if (match := _LAYOUT_TAG.search(text))]
        if len(rows) >= data.MIN_ROWS and len(laid_out) > MAX_GARBLED_SHARE * len(rows):
            return check.warned(
                f"{len(laid_out):,} of {len(rows):,} rows have tags of HTML, {laid_out[0]} for one"
            )
        return check.passed(f"none of {len(rows):,} rows")
    origin, match = garbled[0]
    excerpt = match.string[max(0, match.start() - 12) : match.end() + 12]
    details = f"{len(garbled):,} of {len(rows):,} rows; {origin} has {excerpt!r}"
    return data.verdict_on_share(details, len(garbled), len(rows), MAX_GARBLED_SHARE, check.warned(details))


def _garbled_at(text: str) -> re.Match[str] | None:
    # Beside tags they are code, which is meant so, and so are escapes in a text that has line ends.
    return (
        _MISREAD.search(text)
        or (None if _TAG.search(text) else _ENTITY.search(text))
        or (None if "\n" in text else _ESCAPED.search(text))
    )


def check_answer_in_prompt(subject: check.PreflightSubject) -> check.Result:
    """Counts answers of eight words and more, or solutions that a rule compares with, that stand word for
    word in their prompt. It fails when more than half of at least 30 do, and warns from a tenth on, or where
    more than half begin with their own prompt, said once more."""
    found: list[str] = []
    echoes: list[str] = []
    looked = 0
    for record in subject.records:
        prompt = _words(record.prompt)
        reference = record.answer if isinstance(record, Prompt) else None
        answers = [] if isinstance(record, Prompt) else list(_learnt_answers(record))
        long = [
            words for text in (*answers, reference or "") if len((words := _words(text)).split()) >= MIN_WORDS
        ]
        looked += len(long)
        question = _words(record.prompt[-1:] if isinstance(record.prompt, tuple) else record.prompt)
        echoes += [record.origin for words in long if question and words.startswith(f"{question} ")]
        found += [record.origin for words in long if words in prompt]
    if not looked:
        return check.not_applicable(f"no answer has {MIN_WORDS} words")
    details = f"{len(found):,} of {looked:,} answers stand in their prompt"
    if found:
        details += f", {found[0]} for one"
    if looked >= data.MIN_ROWS and len(found) > MAX_COPIED_SHARE * looked:
        return check.failed(details)
    if looked >= data.MIN_ROWS and len(echoes) > MAX_COPIED_SHARE * looked:
        return check.warned(f"{details}; {len(echoes):,} begin with it, {echoes[0]} for one")
    return check.warned(details) if len(found) > FEW_COPIED_SHARE * looked else check.passed(details)


def _words(text: Text) -> str:
    return " ".join(plain_text(text).casefold().split())


def _learnt_answers(record: Record) -> Iterator[Text]:
    preferred = [better for better, _ in data.preference_pairs(record)]
    yield from dict.fromkeys(preferred) if preferred else answers_of(record)


def check_giveaway(subject: check.PreflightSubject) -> check.Result:
    """Looks for a word, or a mark, that stands in one side of every pair and not in the other. It fails when
    the whole interval of 95 % (Wilson's) of pairs that one word tells apart lies above 95 %, and warns
    from 30 pairs on when that share does."""
    data.require_judgements(subject)
    counts: Counter[tuple[str, str]] = Counter()
    pairs = 0
    for record in subject.records:
        for better, worse in data.preference_pairs(record):
            pairs += 1
            chosen, rejected = (set(_WORD.findall(plain_text(side).casefold())) for side in (better, worse))
            counts.update((word, "preferred") for word in chosen - rejected)
            counts.update((word, "other") for word in rejected - chosen)
    if not counts:
        return check.not_applicable("no pair differs in a word")
    [((word, side), count)] = counts.most_common(1)
    low, _ = wilson_interval(count / pairs, pairs)
    details = f"{word!r} says most: it stands in the {side} answer alone in {count:,} of {pairs:,} pairs"
    if low > data.MAX_ONE_SIDED_SHARE:
        return check.failed(details)
    doubtful = pairs >= data.MIN_ROWS and count > data.MAX_ONE_SIDED_SHARE * pairs
    return check.warned(details) if doubtful else check.passed(details)


def check_label_noise(subject: check.PreflightSubject) -> check.Result:
    """A baseline that knows the words of answers and their length guesses each of 300 to 1,000 pairs from all
    others. It warns where it does no better than a coin, or where of the fifth that it is surest of less than
    seventy in a hundred are called right: so do labels of which a third is turned round, or random."""
    data.require_judgements(subject)
    pairs: dict[str, tuple[str, str]] = {}
    for record in subject.records:
        # One pair a prompt: an answer that stands in two pairs would tell of the one what the other says.
        for better, worse in islice(data.preference_pairs(record), 1):
            if len(pairs) < MAX_FITTED_PAIRS:
                pairs.setdefault(_words(record.prompt), (_words(better), _words(worse)))
    if len(pairs) < MIN_FITTED_PAIRS:
        return check.not_applicable(f"{len(pairs)} prompts with a pair; {MIN_FITTED_PAIRS} say something")
    margin_N = leave_one_out_margins([*pairs.values()])
    surest_N = margin_N[margin_N.abs().argsort(descending=True)[: len(margin_N) // 5]]
    accuracy, surest = float((margin_N > 0).double().mean()), float((surest_N > 0).double().mean())
    low, high = wilson_interval(accuracy, len(margin_N))
    details = (
        f"words and length alone call {accuracy:.0%} ({low:.0%} to {high:.0%}) of {len(margin_N):,} pairs "
        f"right, and {surest:.0%} of the fifth where they say most"
    )
    if low <= 0.5:
        return check.warned(f"{details}: no better than a coin")
    doubtful = wilson_interval(surest, len(surest_N))[1] < _MIN_SUREST_ACCURACY
    if doubtful:
        return check.warned(f"{details}: as where a third of labels is turned round")
    return check.passed(details)


def leave_one_out_margins(pairs: Sequence[tuple[str, str]]) -> Tensor:
    """What ridge regression on words and length, fitted to all other pairs, says of each: above 0 where it
    prefers the first answer too."""
    features_NF = torch.stack([leave_one_out_features(pair) for pair in pairs])
    kernel_NN = features_NF @ features_NF.mT
    # The closed form: with H = K (K + λ)⁻¹, row i without itself has (Hy - diag H · y) / (1 - diag H), y = 1.
    hat_NN = torch.linalg.solve(kernel_NN + _RIDGE * torch.eye(len(pairs), dtype=torch.float64), kernel_NN)
    own_N = hat_NN.diagonal()
    return (hat_NN.sum(-1) - own_N) / (1 - own_N)


def leave_one_out_features(pair: tuple[str, str]) -> Tensor:
    """The first text's words, hashed, and the logarithm of its length, less those of the second, ``[F]``."""
    features_F = torch.zeros(HASHED_WORDS + 1, dtype=torch.float64)
    for sign, text in zip((1.0, -1.0), pair, strict=True):
        words = _WORD.findall(text)
        features_F[-1] += 2 * sign * math.log1p(len(words))
        numbers = [zlib.crc32(word.encode()) % HASHED_WORDS for word in {*words}]
        minlength = len(features_F)
        features_F += sign * torch.bincount(torch.tensor(numbers, dtype=torch.long), minlength=minlength)
    return features_F


def check_control_tokens(subject: check.PreflightSubject) -> check.Result:
    """Looks for the texts of control tokens among the words of prompts and answers. Where a template writes
    the turns, a prompt must have as many control tokens with them as with harmless words in their place; and
    it fails when more than half of at least 30 rows hold some, as rows do that went through a template
    already. Where as many hold those of other models' templates it warns."""
    if not subject.records:
        return check.not_applicable("there is no row to look at")
    control = subject.encoder.info.control
    pattern = re.compile("|".join(re.escape(token) for token in control) or r"(?!)")
    held = [(record, found) for record in subject.records if (found := _first_match(record, pattern))]
    rows = len(subject.records)
    if not held:
        return _foreign_control(subject.records)
    for record, _ in held[: check.SAMPLE_SIZE]:
        fault = _forged_control(subject.encoder, record, pattern)
        if fault is not None:
            return check.failed(f"{record.origin}: {fault}")
    details = (
        f"{len(held):,} of {rows:,} rows hold the text of a control token; {held[0][0].origin} {held[0][1]!r}"
    )
    if not subject.encoder.asks_in_turns and isinstance(held[0][0].prompt, str):
        return check.warned(f"{details}, which stays a token, since the text is raw")
    if rows >= data.MIN_ROWS and len(held) > MAX_TEMPLATED_SHARE * rows:
        return check.failed(f"{details}: they were through a template before")
    return check.warned(f"{details}, which the model is shown as letters")


def _foreign_control(records: Sequence[Record]) -> check.Result:
    foreign = re.compile("|".join(map(re.escape, _FOREIGN_TOKENS)))
    marked = [found for record in records if (found := _first_match(record, foreign))]
    if len(records) < data.MIN_ROWS or len(marked) <= MAX_TEMPLATED_SHARE * len(records):
        return check.passed(f"none of {len(records):,} rows holds the text of a control token")
    return check.warned(
        f"{len(marked):,} of {len(records):,} rows hold {marked[0]!r}, a control token of other models: they "
        "were through another template, and here it is learnt as letters"
    )


def _first_match(record: Record, pattern: re.Pattern[str]) -> str | None:
    found = (pattern.search(plain_text(text)) for text in (record.prompt, *answers_of(record)))
    return next((match[0] for match in found if match is not None), None)


def _forged_control(encoder: Encoder, record: Record, pattern: re.Pattern[str]) -> str | None:
    """How many control tokens a prompt has too many because of its own words; None where all is well."""
    prompt = encoder.prompt_as_turns(record.prompt)
    if isinstance(prompt, str):
        return None
    harmless = tuple(replace(turn, content=pattern.sub("word", words_of(turn))) for turn in prompt)
    unknown = encoder.info.tokenizer.unk_token
    control = {encoder.info.id_of(token) for token in encoder.info.control if token != unknown}
    try:
        forged, own = (
            sum(token in control for token in encoder.encode_prompt(turns)) for turns in (prompt, harmless)
        )
    except UserError:
        return None
    return f"{forged - own} control tokens of the prompt are its own words" if forged > own else None


def check_empty_prompts(subject: check.PreflightSubject) -> check.Result:
    """Counts rows whose prompt says nothing. Where answers are judged, more than half of them fail; documents
    without a prompt are told, since a chat model learns from them outside of its template."""
    rows = [record for record in subject.records if not isinstance(record, Prompt)]
    if not rows:
        return check.not_applicable("prompts without words are refused where answers are drawn")
    prompts = [(record.origin, record.prompt) for record in rows]
    empty = [origin for origin, prompt in prompts if isinstance(prompt, str) and not prompt.strip()]
    details = f"{len(empty):,} of {len(rows):,} rows have an empty prompt"
    if not empty:
        return check.passed(details)
    details += f", {empty[0]} for one"
    if data.learns_from_judgements(subject) and 2 * len(empty) > len(rows):
        return check.failed(details)
    if subject.encoder.asks_in_turns:
        return check.warned(f"{details}: documents, learnt outside of the chat template")
    return check.passed(details)


def check_template_bos(subject: check.PreflightSubject) -> check.Result:
    """Renders a conversation by the template that is saved with the model and lets the tokenizer add what it
    adds to any text, as engines do that render first and cut into tokens then: two BOS at the start are
    told."""
    encoder = subject.encoder
    if encoder.chat_format is None or encoder.info.bos is None:
        return check.not_applicable("the tokenizer has no chat template, or no BOS")
    rendered = encoder.chat_format.template.render(user_turn("Hello"), ask=True)
    ids = encoder.info.tokenizer.encode(rendered, add_special_tokens=True)
    if ids[:2] == [encoder.info.bos, encoder.info.bos]:
        return check.warned(
            "the saved template writes BOS, and the tokenizer puts another before any text: here there "
            "is one, but an engine that cuts the rendered text into tokens has to be told "
            "add_special_tokens=False"
        )
    return check.passed("the rendered text begins with one BOS whoever cuts it into tokens")


CHECKS = (
    check.Check(name="cut-answers", run=check_cut_answers, at_start=True),
    check.Check(name="garbled-text", run=check_garbled_text, at_start=True),
    check.Check(name="answer-in-prompt", run=check_answer_in_prompt, at_start=True),
    check.Check(name="giveaway", run=check_giveaway, at_start=True),
    check.Check(name="label-noise", run=check_label_noise, at_start=True),
    check.Check(name="control-tokens", run=check_control_tokens, at_start=True),
    check.Check(name="empty-prompts", run=check_empty_prompts, at_start=True),
    check.Check(name="template-bos", run=check_template_bos, at_start=True),
)
