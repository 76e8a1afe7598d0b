"""Checks of what the rows say: what a model would learn besides what was meant.

Answers that break off, answers that stand in their prompt, a word that gives the preferred side away, control
tokens among somebody's words, prompts that say nothing. Each is counted in one pass over the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from plaudit.data.records import Prompt, Record, Steps, Text, plain_text, user_turn, words_of
from plaudit.errors import UserError
from plaudit.evaluation.stats import wilson_interval
from plaudit.preflight.check import (
    SAMPLE_SIZE,
    Check,
    PreflightSubject,
    Result,
    failed,
    not_applicable,
    passed,
    warned,
)
from plaudit.preflight.data import MAX_ONE_SIDED_SHARE, MIN_ROWS, learns_from_judgements, preference_pairs
from plaudit.preflight.tokenization import abbreviate
from plaudit.tokens.encode import Encoder, record_answers

MIN_WORDS = 8
"""Words that an answer has at least where its end, or its place in the prompt, says something."""
MAX_CUT_SHARE = 0.5
"""Above it breaking off is what the rows teach; single lists and titles end without a mark as well."""
MAX_COPIED_SHARE = 0.5
"""Above it copying is what the rows teach; a few answers are rightly quoted from what was asked."""
FEW_COPIED_SHARE = 0.1
"""From this share on it is worth a look."""
MAX_TEMPLATED_SHARE = 0.5
"""Above it control tokens are no accident: the rows have been through a template already."""
_BROKEN_OFF = re.compile(r"[^\W_][,;:\-–—]?$|[,\-–—]$")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(\s|$)")


def check_cut_answers(subject: PreflightSubject) -> Result:
    """Counts answers of eight words and more that end in a letter or a comma although they have sentences
    with marks at their ends: answers that a limit of tokens has cut. It fails when more than half of at least
    30 do."""
    cut: list[tuple[str, str]] = []
    looked = 0
    for record in subject.records:
        for answer in _learnt_answers(record):
            text = plain_text(answer).rstrip()
            if len(text.split()) < MIN_WORDS or not _SENTENCE_END.search(text):
                continue
            looked += 1
            if _BROKEN_OFF.search(text):
                cut.append((record.origin, text))
    if not looked:
        return not_applicable("no answer is long enough, with marks at the ends of its sentences")
    details = f"{len(cut):,} of {looked:,} answers with sentences break off in one"
    if cut:
        details += f"; {cut[0][0]} ends in {abbreviate(cut[0][1][-60:])}"
    return failed(details) if looked >= MIN_ROWS and len(cut) > MAX_CUT_SHARE * looked else passed(details)


def check_answer_in_prompt(subject: PreflightSubject) -> Result:
    """Counts answers of eight words and more, or solutions that a rule compares with, that stand word for
    word in their prompt. It fails when more than half of at least 30 do, and warns from a tenth on."""
    found: list[str] = []
    looked = 0
    for record in subject.records:
        prompt = _words(record.prompt)
        reference = record.answer if isinstance(record, Prompt) else None
        answers = [] if isinstance(record, Prompt) else list(_learnt_answers(record))
        long = [
            words for text in (*answers, reference or "") if len((words := _words(text)).split()) >= MIN_WORDS
        ]
        looked += len(long)
        found += [record.origin for words in long if words in prompt]
    if not looked:
        return not_applicable(f"no answer has {MIN_WORDS} words")
    details = f"{len(found):,} of {looked:,} answers stand in their prompt"
    if found:
        details += f", {found[0]} for one"
    if looked >= MIN_ROWS and len(found) > MAX_COPIED_SHARE * looked:
        return failed(details)
    return warned(details) if len(found) > FEW_COPIED_SHARE * looked else passed(details)


def _words(text: Text) -> str:
    return " ".join(plain_text(text).casefold().split())


def _learnt_answers(record: Record) -> Iterator[Text]:
    """What the rows teach to say: of judged rows what was preferred."""
    preferred = [better for better, _ in preference_pairs(record)]
    if preferred:
        yield from dict.fromkeys(preferred)
    elif not isinstance(record, Prompt | Steps):
        yield from record_answers(record)


def check_giveaway(subject: PreflightSubject) -> Result:
    """Looks for a word, or a mark, that stands in one side of every pair and not in the other. It fails when
    the whole interval of 95 % (Wilson's) of pairs that one word tells apart lies above 95 %, and warns
    from 30 pairs on when that share does."""
    if not learns_from_judgements(subject):
        return not_applicable("nothing is compared: answers are learnt as they stand, or drawn")
    counts: Counter[tuple[str, str]] = Counter()
    pairs = 0
    for record in subject.records:
        for better, worse in preference_pairs(record):
            pairs += 1
            chosen, rejected = (
                set(re.findall(r"\w+|[^\w\s]", plain_text(side).casefold())) for side in (better, worse)
            )
            counts.update((word, "preferred") for word in chosen - rejected)
            counts.update((word, "other") for word in rejected - chosen)
    if not counts:
        return not_applicable("no pair differs in a word")
    [((word, side), count)] = counts.most_common(1)
    low, _ = wilson_interval(count / pairs, pairs)
    details = f"{word!r} says most: it stands in the {side} answer alone in {count:,} of {pairs:,} pairs"
    if low > MAX_ONE_SIDED_SHARE:
        return failed(details)
    doubtful = pairs >= MIN_ROWS and count > MAX_ONE_SIDED_SHARE * pairs
    return warned(details) if doubtful else passed(details)


def check_control_tokens(subject: PreflightSubject) -> Result:
    """Looks for the texts of control tokens among the words of prompts and answers. Where a template writes
    the turns, a prompt must have as many control tokens with them as with harmless words in their place; and
    it fails when more than half of at least 30 rows hold some, as rows do that went through a template
    already."""
    if not subject.records:
        return not_applicable("there is no row to look at")
    control = subject.encoder.info.control
    pattern = re.compile("|".join(re.escape(token) for token in control) or r"(?!)")
    held = [(record, found) for record in subject.records if (found := _first_match(record, pattern))]
    rows = len(subject.records)
    if not held:
        return passed(f"none of {rows:,} rows holds the text of a control token")
    for record, _ in held[:SAMPLE_SIZE]:
        fault = _forged_control(subject.encoder, record, pattern)
        if fault is not None:
            return failed(f"{record.origin}: {fault}")
    details = (
        f"{len(held):,} of {rows:,} rows hold the text of a control token; {held[0][0].origin} {held[0][1]!r}"
    )
    if not subject.encoder.asks_in_turns and isinstance(held[0][0].prompt, str):
        return warned(f"{details}, which stays a token, since the text is raw")
    if rows >= MIN_ROWS and len(held) > MAX_TEMPLATED_SHARE * rows:
        return failed(f"{details}: they were through a template before")
    return warned(f"{details}, which the model is shown as letters")


def _first_match(record: Record, pattern: re.Pattern[str]) -> str | None:
    answers = () if isinstance(record, Prompt | Steps) else record_answers(record)
    found = (pattern.search(plain_text(text)) for text in (record.prompt, *answers))
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


def check_empty_prompts(subject: PreflightSubject) -> Result:
    """Counts rows whose prompt says nothing. Where answers are judged, more than half of them fail; documents
    without a prompt are told, since a chat model learns from them outside of its template."""
    rows = [record for record in subject.records if not isinstance(record, Prompt)]
    if not rows:
        return not_applicable("prompts without words are refused where answers are drawn")
    prompts = [(record.origin, record.prompt) for record in rows]
    empty = [origin for origin, prompt in prompts if isinstance(prompt, str) and not prompt.strip()]
    details = f"{len(empty):,} of {len(rows):,} rows have an empty prompt"
    if not empty:
        return passed(details)
    details += f", {empty[0]} for one"
    if learns_from_judgements(subject) and 2 * len(empty) > len(rows):
        return failed(details)
    if subject.encoder.asks_in_turns:
        return warned(f"{details}: documents, learnt outside of the chat template")
    return passed(details)


def check_template_bos(subject: PreflightSubject) -> Result:
    """Renders a conversation by the template that is saved with the model and lets the tokenizer add what it
    adds to any text, as engines do that render first and cut into tokens then: two BOS at the start are
    told."""
    encoder = subject.encoder
    if encoder.chat_format is None or encoder.info.bos is None:
        return not_applicable("the tokenizer has no chat template, or no BOS")
    rendered = encoder.chat_format.template.render(user_turn("Hello"), ask=True)
    ids = encoder.info.tokenizer.encode(rendered, add_special_tokens=True)
    if ids[:2] == [encoder.info.bos, encoder.info.bos]:
        return warned(
            "the saved template writes BOS, and the tokenizer puts another before any text: here there "
            "is one, but an engine that cuts the rendered text into tokens has to be told "
            "add_special_tokens=False"
        )
    return passed("the rendered text begins with one BOS whoever cuts it into tokens")


CHECKS = (
    Check(
        name="cut-answers",
        proves="Answers end where a sentence does.",
        matters="A model learns where to stop from where its rows stop. Answers that were drawn with too "
        "small a limit break off in the middle, and so will the model; the loss looks as it should. Rows "
        "that were cut before training were a fault in h2ogpt#92.",
        mend="Draw or export the answers with a higher limit, or leave out those that were cut.",
        run=check_cut_answers,
        at_start=True,
    ),
    Check(
        name="answer-in-prompt",
        proves="Answers do not stand in their own prompts.",
        matters="Where the answer can be read off the prompt, copying is all that is learnt, and every "
        "figure looks excellent until a prompt comes without it. A field with the right answer that got "
        "into the prompt spoiled 79 of 270 trials in DataAgentBench#56.",
        mend="Look at the row that is named; leave the answer out of the prompt. Where quoting is the task, "
        "allow it.",
        run=check_answer_in_prompt,
        at_start=True,
    ),
    Check(
        name="giveaway",
        proves="No single word tells preferred answers from others.",
        matters="A model takes the easiest way to tell answers apart. Where all preferred ones open with the "
        "same word, or all others hold an apology, that word is what is rewarded and all that is learnt.",
        mend="Take the word out of the answers, or add pairs in which it is on the other side.",
        run=check_giveaway,
        at_start=True,
    ),
    Check(
        name="control-tokens",
        proves="What people wrote is read as letters: none of their words is a control token.",
        matters="A user who writes the end of a turn and a header speaks for the system or the assistant: "
        "transformers#29279, vllm#31735. And rows that went through a template before are put into it again: "
        "the model learns turns within turns.",
        mend="Give conversations as messages, without the template's own tokens. Where the rows are meant to "
        "be rendered already, train them raw: --text raw.",
        run=check_control_tokens,
        at_start=True,
    ),
    Check(
        name="empty-prompts",
        proves="Rows ask something.",
        matters="An answer to nothing teaches to say it whatever is asked. A field that was not read leaves "
        "every prompt empty, and the loss falls all the same; whether a prompt is needed at all was asked in "
        "unsloth#112.",
        mend="Name the field that holds the prompt (--columns prompt=FIELD).",
        run=check_empty_prompts,
        at_start=True,
    ),
    Check(
        name="template-bos",
        proves="The saved template gives one BOS in every engine.",
        matters="Many engines render a conversation to text and cut that into tokens as any other text, with "
        "a BOS in front. Where the template has written one already there are two, and the model was never "
        "trained on that: vllm#27486, sglang#888.",
        mend="Tell the engine not to add special tokens to rendered conversations, or take bos_token out of "
        "the template of a model that is served by such an engine alone.",
        run=check_template_bos,
        at_start=True,
    ),
)
