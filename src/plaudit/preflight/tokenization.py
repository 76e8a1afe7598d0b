"""Text → tokens: what the model should say, where that begins and ends, and that nothing else is trained.

The same row is compared in two forms: as the run encodes it, and as transformers alone would write and cut
it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

from plaudit.data.records import (
    Message,
    Prompt,
    Steps,
    Text,
    answer_to,
    answers_of,
    assistant_turn,
    plain_text,
    tool_schemas,
    user_turn,
    words_of,
)
from plaudit.errors import UserError
from plaudit.preflight import check
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.encode import AnsweredRecord, Encoder
from plaudit.tokens.inspect import show_examples
from plaudit.tokens.tokenizer import CUT

MAX_SHOWN_CHARACTERS = 120
_MAX_TRIED_ROWS = 8 * check.SAMPLE_SIZE
_PROBE_ANSWER = "plauditSaysThis"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    record: AnsweredRecord | Steps
    prompt: Text
    """The words of its prompt, with whatever stands there for a picture."""
    answers: tuple[Text, ...]
    example: Example


def encoded_rows(subject: check.PreflightSubject) -> list[EncodedRow]:
    """The first few rows with answers; those that cannot be encoded are left out, as the run leaves them."""
    encoded: list[EncodedRow] = []
    refused: list[UserError] = []
    answered = (record for record in subject.records if not isinstance(record, Prompt))
    for record in islice(answered, _MAX_TRIED_ROWS):
        answers = _row_answers(record)
        try:
            example = subject.encoder.encode(record.prompt, answers, record.origin)
        except UserError as error:
            refused.append(error)
            continue
        encoder = subject.encoder
        words = encoder.prompt_words(encoder.prompt_as_turns(record.prompt))
        answers = tuple(encoder.answer_as_turns(record.prompt, answer) for answer in answers)
        encoded.append(EncodedRow(record=record, prompt=words, answers=answers, example=example))
        if len(encoded) == check.SAMPLE_SIZE:
            break
    if refused and not encoded:
        raise refused[0]
    return encoded


def encoded_bare_prompts(subject: check.PreflightSubject) -> list[tuple[str, Text, tuple[int, ...]]]:
    """The first few bare prompts: origin, text and encoded tokens."""
    encoded: list[tuple[str, Text, tuple[int, ...]]] = []
    refused: list[UserError] = []
    for record in islice(
        (record for record in subject.records if isinstance(record, Prompt)), check.SAMPLE_SIZE
    ):
        text = subject.encoder.prompt_as_turns(record.prompt)
        try:
            ids = subject.encoder.encode_prompt(text)
            encoded.append((record.origin, subject.encoder.prompt_words(text), ids))
        except UserError as error:
            refused.append(error)
    if refused and not encoded:
        raise refused[0]
    return encoded


def render_chat(encoder: Encoder, turns: Sequence[Message], *, add_generation_prompt: bool) -> str:
    """What transformers' own apply_chat_template makes of the turns, with what stands for each picture."""
    text = render_marks(encoder, turns, add_generation_prompt=add_generation_prompt)
    return encoder.with_places([text], tuple(turns))[0]


def render_marks(encoder: Encoder, turns: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
    """As `render_chat`, with the template's own mark for each picture."""
    assert encoder.chat_format is not None, "a tokenizer with a template"
    tokenizer: Any = encoder.info.tokenizer
    chat_format = encoder.chat_format
    return tokenizer.apply_chat_template(
        chat_format.template.turn_fields(chat_format.in_letters(turns)),
        tools=tool_schemas(chat_format.in_letters(turns)),
        chat_template=encoder.template,
        add_generation_prompt=add_generation_prompt,
        tokenize=False,
        **chat_format.template.variables,
    )


def template_end_token(encoder: Encoder) -> int | None:
    """The first control token behind a last answer; None where no template writes one."""
    if encoder.chat_format is None:
        return encoder.info.eos
    turns = (*user_turn("plauditAsksThis"), *assistant_turn(_PROBE_ANSWER))
    rest = render_chat(encoder, turns, add_generation_prompt=False).partition(_PROBE_ANSWER)[2].lstrip()
    added = encoder.info.tokenizer.added_tokens_decoder.items()
    matches = [(len(token.content), number) for number, token in added if rest.startswith(token.content)]
    # The longest, as one control token may be the beginning of another.
    return max(matches)[1] if matches else None


def end_tokens(encoder: Encoder) -> set[int]:
    """Every token that may end an answer: those that the model's files name, and the template's own."""
    template_end_id = template_end_token(encoder)
    return {*encoder.info.stops, *(() if template_end_id is None else (template_end_id,))}


def tokenize_with_bos(encoder: Encoder, text: str) -> tuple[int, ...]:
    """The tokens that the tokenizer makes of the text, with one BOS where it begins texts with one."""
    info = encoder.info
    tokenizer: Any = info.tokenizer
    # The template's text may hold a BOS already; the tokenizer must not put another in front of it.
    # In letters stands only what somebody wrote: transformers by itself would read it as control tokens.
    ids = info.encode(text) if CUT in text else tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    while info.bos is not None and ids[:2] == (info.bos, info.bos):
        ids = ids[1:]
    missing = info.adds_bos and info.bos is not None and ids[:1] != (info.bos,)
    return (info.bos, *ids) if missing and info.bos is not None else ids


def decode_without_blanks(encoder: Encoder, ids: Iterable[int]) -> str:
    """The decoded text without blanks, since tokenizers differ in the blanks that they restore."""
    tokenizer: Any = encoder.info.tokenizer
    text = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return "".join(text.split())


def strip_end_tokens(text: str, ends: Sequence[str]) -> str:
    """The text without end-of-turn tokens that the row itself brought along.

    >>> strip_end_tokens("Paris.</s> </s>", ("</s>",))
    'Paris.'
    """
    bare = text.rstrip()
    end = next((end for end in ends if end and bare.endswith(end)), None)
    return text if end is None else strip_end_tokens(bare.removesuffix(end), ends)


def strip_turn_ends(answer: Sequence[Message], ends: Sequence[str]) -> tuple[Message, ...]:
    """The turns up to the last answer, the assistant's without ends of their own."""
    last = max(i for i, turn in enumerate(answer) if turn.role == "assistant" and turn.trained)
    return tuple(
        replace(turn, content=strip_end_tokens(words_of(turn), ends)) if turn.role == "assistant" else turn
        for turn in answer[: last + 1]
    )


def abbreviate(text: str) -> str:
    """The text in quotes, its middle left out when it is long."""
    half = MAX_SHOWN_CHARACTERS // 2
    return repr(text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:half]} … {text[-half:]}")


def _row_answers(record: AnsweredRecord | Steps) -> tuple[Text, ...]:
    if not isinstance(record, Steps):
        return answers_of(record)
    return (answer_to(record.prompt, "\n".join(record.steps)),)


MAX_SHOWN_ROWS = 2


def check_one_bos(subject: check.PreflightSubject) -> check.Result:
    """Counts the BOS in prompts and answers: one at the start, and no other but where a template begins every
    question with one, as Llama 2's does; where BOS also ends answers, or is the mark before each turn, only
    two at the start are wrong."""
    info = subject.encoder.info
    if info.bos is None:
        return check.not_applicable("the tokenizer has no BOS")
    rows = [
        (row.record.origin, _user_turn_count(row.record.prompt, text), row.example.prompt, answer.ids)
        for row in encoded_rows(subject)
        for text, answer in zip(row.answers, row.example.completions, strict=True)
    ]
    rows += [(origin, _user_turn_count(text), ids, ()) for origin, text, ids in encoded_bare_prompts(subject)]
    if not rows:
        return check.not_applicable("there is no row to look at")
    for origin, questions, prompt, answer in rows:
        fault = _bos_fault(subject.encoder, questions, prompt, answer)
        if fault is not None:
            return check.failed(f"{origin}: {fault}; it begins with {abbreviate(info.decode(prompt[:12]))}")
    return check.passed(f"{len(rows)} rows: {'one BOS at the start' if info.adds_bos else 'no BOS too many'}")


def _user_turn_count(*texts: Text) -> int:
    turns = (turn for text in texts if not isinstance(text, str) for turn in text)
    return max(1, sum(turn.role == "user" for turn in turns))


def _bos_fault(encoder: Encoder, questions: int, prompt: Sequence[int], answer: Sequence[int]) -> str | None:
    bos = encoder.info.bos
    ids = (*prompt, *answer)
    if encoder.info.adds_bos and prompt[0] != bos:
        return "the tokenizer begins texts with BOS, and this row does not"
    if list(prompt[:2]) == [bos, bos]:
        return "two BOS tokens at the start"
    # GPT-2's BOS is its EOS and rightly stands at the end of every answer; SmolLM2's begins every turn.
    if bos in encoder.stop_ids or _bos_begins_turns(encoder):
        return None
    if answer and answer[0] == bos:
        return "a BOS between prompt and answer"
    if ids.count(bos) > questions:
        return f"{ids.count(bos)} BOS tokens in a row of {questions} questions"
    return None if bos not in ids or prompt[0] == bos else "a BOS that is not at the start"


def _bos_begins_turns(encoder: Encoder) -> bool:
    """Whether the token that is called BOS is the mark before each turn, and no text's beginning."""
    if encoder.chat_format is None or encoder.info.adds_bos:
        return False
    conversation = (*user_turn("one"), *assistant_turn("two"), *user_turn("three"))
    ids = encoder.info.encode(encoder.chat_format.template.render(conversation, ask=True))
    # The header that asks for an answer is a turn's as well.
    return ids.count(encoder.info.bos or 0) > len(conversation)


def check_answer_end(subject: check.PreflightSubject) -> check.Result:
    """Compares the last tokens of every trained answer with the end that the template writes in transformers'
    own rendering and with the stop tokens in the model's files; where answers are drawn, compares what
    drawing stops at."""
    encoder = subject.encoder
    template_end_id, ends = template_end_token(encoder), end_tokens(encoder)
    control = ends & {*encoder.info.tokenizer.added_tokens_decoder}
    names = {end: str(encoder.info.tokenizer.convert_ids_to_tokens(end)) for end in ends}
    if template_end_id is not None and template_end_id not in encoder.stop_ids:
        return check.failed(
            f"the template ends answers with {names[template_end_id]!r}, which is no stop token of the model"
        )
    if not subject.trained:
        if template_end_id is None:
            return check.not_applicable("answers are drawn, and no template says how one ends")
        return check.passed(f"answers end with {names[template_end_id]!r}, at which drawing stops")
    count = 0
    for example in subject.trained:
        for answer in example.completions:
            fault = _end_fault(answer, ends, control, encoder.stop_ids)
            if fault is not None:
                tail = abbreviate(encoder.info.decode(answer.ids[-4:]))
                return check.failed(f"{example.origin}: {fault}; the answer ends in {tail}")
            count += 1
    last = subject.trained[0].completions[0].ids[-1]
    added = "" if last in encoder.info.stops else ", which the model's files do not name and the run adds"
    return check.passed(f"{count:,} answers end once, in {names[last]!r}{added}")


def _end_fault(answer: Completion, ends: set[int], control: set[int], stops: Sequence[int]) -> str | None:
    """Some models' files name an ordinary word as an end: it counts as one only at the very end."""
    last = answer.ids[-1]
    if last not in ends:
        return "the answer has no end-of-turn token"
    if last not in stops:
        return "the end-of-turn token is none at which the model stops"
    if not answer.mask[-1]:
        return "the end-of-turn token is not trained"
    if len(answer.ids) > 1 and answer.mask[-2] and answer.ids[-2] in {last, *control}:
        return "two end-of-turn tokens"
    return None


def check_mask(subject: check.PreflightSubject) -> check.Result:
    """Decodes the trained tokens of the first rows: they must be the words of the row's own answers, each
    with the end of its turn. Before the words may stand only what transformers' rendering has between the
    question and the answer (an empty thought, the name of a channel), since the model has to say that as
    well."""
    rows = encoded_rows(subject)
    if not rows:
        return check.not_applicable("no row holds an answer")
    untrained = next((example for example in subject.trained if not example.trained_tokens), None)
    if untrained is not None:
        return check.failed(
            f"{untrained.origin}: no token is trained", show_examples([untrained], subject.encoder)
        )
    count = unknown = 0
    for row in rows:
        for answer, completion in zip(row.answers, row.example.completions, strict=True):
            fault = _mask_fault(subject.encoder, row, answer, completion)
            if fault is not None:
                rendered_rows = show_examples([row.example], subject.encoder)
                return check.failed(f"{row.record.origin}: {fault}", rendered_rows)
            count += sum(completion.mask)
            unknown += _unknown_token_count(subject.encoder, completion.ids)
    examples = list(subject.trained[:MAX_SHOWN_ROWS]) or [row.example for row in rows[:MAX_SHOWN_ROWS]]
    unknown_note = f", {unknown} of them unknown to the tokenizer" if unknown else ""
    answer = examples[0].completions[0]
    learnt = [token for token, on in zip(answer.ids, answer.mask, strict=True) if on]
    first = subject.encoder.info.decode(learnt)
    return check.passed(
        f"{count:,} trained tokens in {len(rows)} rows are their answers{unknown_note}; of "
        f"{examples[0].origin}: [{abbreviate(first)[1:-1]}]",
        show_examples(examples, subject.encoder),
    )


def _mask_fault(encoder: Encoder, row: EncodedRow, answer: Text, completion: Completion) -> str | None:
    if not any(completion.mask):
        return "no token is trained"
    ends = end_tokens(encoder)
    before, spans = list(row.example.prompt), list[tuple[list[int], list[int]]]()
    # Each trained stretch, with all that stands before it in the row.
    for on, span in groupby(zip(completion.ids, completion.mask, strict=True), lambda pair: pair[1]):
        ids = [token for token, _ in span]
        spans += [(before, ids)] if on else []
        before = [*before, *ids]
    expected_turns = list(_expected_turns(encoder, row, answer))
    if len(spans) != len(expected_turns):
        return f"{len(spans)} stretches are trained, and the row has {len(expected_turns)} answers to learn"
    if spans[-1][1][-1] not in ends:
        return f"{abbreviate(encoder.info.decode(spans[-1][1]))} is trained without the end of its turn"
    for (prefix, ids), expected in zip(spans, expected_turns, strict=True):
        trained_ids = ids[:-1] if ids[-1] in ends else ids
        if not (
            _is_whole_answer(encoder, trained_ids, expected)
            or _is_rest_of_text(encoder, prefix, trained_ids, expected)
        ):
            return (
                f"trained is {abbreviate(encoder.info.decode(trained_ids))}, and the answer is "
                f"{abbreviate(expected[1])}"
            )
        # Blanks were left out above, yet "Q: " + "A" has other tokens than "Q:" + " A".
        if _trailing_blanks(encoder, prefix) != _trailing_blanks(
            encoder, tokenize_with_bos(encoder, expected[0])
        ):
            return (
                f"trained is {abbreviate(encoder.info.decode(trained_ids))}, and the question ends elsewhere"
            )
    return None


def _is_whole_answer(encoder: Encoder, ids: Sequence[int], expected: tuple[str, str, str]) -> bool:
    """Whether it is the answer behind what the template writes there, or the rest of one that it opened."""
    trained = decode_without_blanks(encoder, ids)
    # After encoding and decoding: what of it the tokenizer can represent.
    question, text, whole = (decode_without_blanks(encoder, encoder.info.encode(text)) for text in expected)
    if trained.endswith(text):
        opening = trained.removesuffix(text) if text else trained
        return not opening or whole.startswith(question + opening + text)
    return text.endswith(trained) and question.endswith(text.removesuffix(trained))


def _is_rest_of_text(
    encoder: Encoder, prefix: Sequence[int], ids: Sequence[int], expected: tuple[str, str, str]
) -> bool:
    """Whether it is the whole text's rest: behind a question, words can be unknown that are known alone."""
    question, whole = (
        decode_without_blanks(encoder, tokenize_with_bos(encoder, text))
        for text in (expected[0], expected[2])
    )
    through = decode_without_blanks(encoder, (*prefix, *ids))
    if (
        not _unknown_token_count(encoder, ids)
        or decode_without_blanks(encoder, prefix) != question
        or not whole.startswith(through)
    ):
        return False
    rest = whole.removeprefix(through)
    ends = tuple(str(encoder.info.tokenizer.convert_ids_to_tokens(end)) for end in end_tokens(encoder))
    return not rest or rest.startswith(ends)


def _unknown_token_count(encoder: Encoder, ids: Sequence[int]) -> int:
    unknown = encoder.info.tokenizer.unk_token_id
    return 0 if unknown in end_tokens(encoder) else sum(token == unknown for token in ids)


def _trailing_blanks(encoder: Encoder, ids: Sequence[int]) -> int:
    text = encoder.info.decode(ids)
    return len(text) - len(text.rstrip())


def _expected_turns(encoder: Encoder, row: EncodedRow, answer: Text) -> Iterator[tuple[str, str, str]]:
    """Of each turn to learn: how it is asked, its words, and the whole conversation."""
    ends = [str(encoder.info.tokenizer.convert_ids_to_tokens(stop)) for stop in encoder.stop_ids]
    if isinstance(answer, str) or isinstance(row.prompt, str):
        prompt_text, answer_text = plain_text(row.prompt), strip_end_tokens(plain_text(answer), ends)
        yield prompt_text, answer_text, prompt_text + answer_text
        return
    prompt, turns = row.prompt, strip_turn_ends(answer, ends)
    whole = render_chat(encoder, (*prompt, *turns), add_generation_prompt=False)
    for i, turn in enumerate(turns):
        if turn.role == "assistant" and turn.trained and (encoder.turns == "all" or i == len(turns) - 1):
            question = render_chat(encoder, (*prompt, *turns[:i]), add_generation_prompt=True)
            # What a call looks like is the template's doing: it reaches to the token that ends it.
            written = whole.removeprefix(question) if turn.tool_calls else words_of(turn)
            cuts = [written.index(end) for end in ends if end and end in written] if turn.tool_calls else []
            yield question, written[: min(cuts, default=len(written))], whole


CHECKS = (
    check.Check(name="one-bos", run=check_one_bos, at_start=True),
    check.Check(name="end-of-turn", run=check_answer_end, at_start=True),
    check.Check(name="mask", run=check_mask, at_start=True),
)
