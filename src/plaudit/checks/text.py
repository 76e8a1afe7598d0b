"""Text → tokens: what the model should say, where that begins and ends, and that nothing else is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from plaudit.batches.show import show_examples
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Completion
from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.subject import Subject
from plaudit.checks.written import (
    Written,
    all_ends,
    asked,
    cut_up,
    kept,
    rendered,
    said,
    shortened,
    template_end,
    unended,
    unended_turns,
    written,
)
from plaudit.records.messages import Text, words

SHOWN = 2
"""Rows that are shown token by token."""


def one_bos(subject: Subject) -> Result:
    """Counts the BOS in prompts and answers: one at the start, and no other but where a template begins every
    question with one, as Llama 2's does; where BOS also ends answers, only two at the start are wrong."""
    info = subject.encoder.info
    if info.bos is None:
        return not_applicable("the tokenizer has no BOS")
    rows = [
        (one.record.origin, _questions(one.record.prompt, text), one.example.prompt, answer.ids)
        for one in written(subject)
        for text, answer in zip(one.answers, one.example.completions, strict=True)
    ]
    rows += [(origin, _questions(text), ids, ()) for origin, text, ids in asked(subject)]
    if not rows:
        return not_applicable("there is no row to look at")
    for origin, questions, prompt, answer in rows:
        fault = _bos_fault(subject.encoder, questions, prompt, answer)
        if fault is not None:
            return failed(f"{origin}: {fault}; it begins with {shortened(info.decode(prompt[:12]))}")
    return passed(f"{len(rows)} rows: {'one BOS at the start' if info.adds_bos else 'no BOS too many'}")


def _questions(*texts: Text) -> int:
    turns = (turn for text in texts if not isinstance(text, str) for turn in text)
    return max(1, sum(turn.role == "user" for turn in turns))


def _bos_fault(encoder: Encoder, questions: int, prompt: Sequence[int], answer: Sequence[int]) -> str | None:
    bos = encoder.info.bos
    ids = (*prompt, *answer)
    if encoder.info.adds_bos and prompt[0] != bos:
        return "the tokenizer begins texts with BOS, and this row does not"
    if list(prompt[:2]) == [bos, bos]:
        return "two BOS tokens at the start"
    if bos in encoder.stop_ids:
        return None
    if answer and answer[0] == bos:
        return "a BOS between prompt and answer"
    if ids.count(bos) > questions:
        return f"{ids.count(bos)} BOS tokens in a row of {questions} questions"
    return None if bos not in ids or prompt[0] == bos else "a BOS that is not at the start"


def right_end(subject: Subject) -> Result:
    """Compares the last tokens of every trained answer with the end that the template writes in transformers'
    own rendering and with the stop tokens in the model's files; where answers are drawn, compares what
    drawing stops at."""
    encoder = subject.encoder
    own, ends = template_end(encoder), all_ends(encoder)
    control = ends & {*encoder.info.tokenizer.added_tokens_decoder}
    names = {end: str(encoder.info.tokenizer.convert_ids_to_tokens(end)) for end in ends}
    if own is not None and own not in encoder.stop_ids:
        return failed(f"the template ends answers with {names[own]!r}, which is no stop token of the model")
    if not subject.trained:
        if own is None:
            return not_applicable("answers are drawn, and no template says how one ends")
        return passed(f"answers end with {names[own]!r}, at which drawing stops")
    count = 0
    for example in subject.trained:
        for answer in example.completions:
            fault = _end_fault(answer, ends, control, encoder.stop_ids)
            if fault is not None:
                tail = shortened(encoder.info.decode(answer.ids[-4:]))
                return failed(f"{example.origin}: {fault}; the answer ends in {tail}")
            count += 1
    last = subject.trained[0].completions[0].ids[-1]
    added = "" if last in encoder.info.stops else ", which the model's files do not name and the run adds"
    return passed(f"{count:,} answers end once, in {names[last]!r}{added}")


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


def mask(subject: Subject) -> Result:
    """Decodes the trained tokens of the first rows: they must be the words of the row's own answers, each
    with the end of its turn. Before the words may stand only what transformers' rendering has between the
    question and the answer (an empty thought, the name of a channel), since the model has to say that as
    well."""
    rows = written(subject)
    if not rows:
        return not_applicable("no row holds an answer")
    silent = next((one for one in subject.trained if not one.trained_tokens), None)
    if silent is not None:
        return failed(f"{silent.origin}: no token is trained", show_examples([silent], subject.encoder))
    count = unknown = 0
    for row in rows:
        for answer, completion in zip(row.answers, row.example.completions, strict=True):
            fault = _mask_fault(subject.encoder, row, answer, completion)
            if fault is not None:
                shown = show_examples([row.example], subject.encoder)
                return failed(f"{row.record.origin}: {fault}", shown)
            count += sum(completion.mask)
            unknown += _unknown(subject.encoder, completion.ids)
    examples = list(subject.trained[:SHOWN]) or [row.example for row in rows[:SHOWN]]
    strange = f", {unknown} of them unknown to the tokenizer" if unknown else ""
    first = _trained_text(subject.encoder, examples[0].completions[0])
    return passed(
        f"{count:,} trained tokens in {len(rows)} rows are their answers{strange}; of {examples[0].origin}: "
        f"[{shortened(first)[1:-1]}]",
        show_examples(examples, subject.encoder),
    )


def _mask_fault(encoder: Encoder, row: Written, answer: Text, completion: Completion) -> str | None:
    if not any(completion.mask):
        return "no token is trained"
    ends = all_ends(encoder)
    before, stretches = list(row.example.prompt), list[tuple[list[int], list[int]]]()
    for on, stretch in groupby(zip(completion.ids, completion.mask, strict=True), lambda pair: pair[1]):
        ids = [token for token, _ in stretch]
        stretches += [(before, ids)] if on else []
        before = [*before, *ids]
    wanted = list(_wanted(encoder, row, answer))
    if len(stretches) != len(wanted):
        return f"{len(stretches)} stretches are trained, and the row has {len(wanted)} answers to learn"
    if stretches[-1][1][-1] not in ends:
        return f"{shortened(encoder.info.decode(stretches[-1][1]))} is trained without the end of its turn"
    for (told, ids), meant in zip(stretches, wanted, strict=True):
        own = ids[:-1] if ids[-1] in ends else ids
        if not (_is_answer(encoder, own, meant) or _is_rest(encoder, told, own, meant)):
            return (
                f"trained is {shortened(encoder.info.decode(own))}, and the answer is {shortened(meant[1])}"
            )
        if _blanks(encoder, told) != _blanks(encoder, cut_up(encoder, meant[0])):
            return f"trained is {shortened(encoder.info.decode(own))}, and the question ends elsewhere"
    return None


def _is_answer(encoder: Encoder, ids: Sequence[int], wanted: tuple[str, str, str]) -> bool:
    """Whether it is the answer behind what the template writes there, or the rest of one that it opened."""
    trained = said(encoder, ids)
    question, text, whole = (kept(encoder, one) for one in wanted)
    if trained.endswith(text):
        opening = trained.removesuffix(text) if text else trained
        return not opening or whole.startswith(question + opening + text)
    return text.endswith(trained) and question.endswith(text.removesuffix(trained))


def _is_rest(encoder: Encoder, told: Sequence[int], ids: Sequence[int], wanted: tuple[str, str, str]) -> bool:
    """Whether it is the whole text's rest: behind a question, words can be unknown that are known alone."""
    question, whole = (said(encoder, cut_up(encoder, one)) for one in (wanted[0], wanted[2]))
    through = said(encoder, (*told, *ids))
    if not _unknown(encoder, ids) or said(encoder, told) != question or not whole.startswith(through):
        return False
    rest = whole.removeprefix(through)
    ends = tuple(str(encoder.info.tokenizer.convert_ids_to_tokens(end)) for end in all_ends(encoder))
    return not rest or rest.startswith(ends)


def _unknown(encoder: Encoder, ids: Sequence[int]) -> int:
    unknown = encoder.info.tokenizer.unk_token_id
    return 0 if unknown in all_ends(encoder) else sum(token == unknown for token in ids)


def _blanks(encoder: Encoder, ids: Sequence[int]) -> int:
    text = encoder.info.decode(ids)
    return len(text) - len(text.rstrip())


def _wanted(encoder: Encoder, row: Written, answer: Text) -> Iterator[tuple[str, str, str]]:
    """Of each turn to learn: how it is asked, its words, and the whole conversation."""
    ends = [str(encoder.info.tokenizer.convert_ids_to_tokens(stop)) for stop in encoder.stop_ids]
    if isinstance(answer, str) or isinstance(row.record.prompt, str):
        asks, tells = words(row.record.prompt), unended(words(answer), ends)
        yield asks, tells, asks + tells
        return
    prompt, turns = row.record.prompt, unended_turns(answer, ends)
    whole = rendered(encoder, (*prompt, *turns), ask=False)
    for i, turn in enumerate(turns):
        if turn.role == "assistant" and (encoder.turns == "all" or i == len(turns) - 1):
            yield rendered(encoder, (*prompt, *turns[:i]), ask=True), words((turn,)), whole


def _trained_text(encoder: Encoder, completion: Completion) -> str:
    ids = [token for token, on in zip(completion.ids, completion.mask, strict=True) if on]
    return encoder.info.decode(ids)


CHECKS = (
    Check(
        name="one-bos",
        proves="A row has at most one BOS, at its start, and has it where the tokenizer asks for it.",
        matters="BOS is the token that begins a text. Many chat templates write one and many tokenizers add "
        "another, or one is put before the answer too. The model has never seen that shape and answers "
        "worse, without any error: axolotl#1616, unsloth#2648, NeMo-RL#855.",
        mend="Take the BOS out of the chat template, or set add_bos_token to false in the tokenizer's files. "
        "Where a BOS is missing, use the tokenizer that the model was trained with.",
        look=one_bos,
        at_start=True,
    ),
    Check(
        name="right-end",
        proves="Every answer ends with exactly one end-of-turn token, it is trained, and the model stops "
        "there.",
        matters="A model learns to stop only from ends that it is trained on. Where the end is cut off or "
        "left out of the loss it talks on until it is cut (torchtune#2967); where it stands twice, the "
        "model learns to say it twice (TRL#4481).",
        mend="Name the token that your template writes behind an answer as eos_token in "
        "tokenizer_config.json, or in eos_token_id of generation_config.json, and mark it as special in the "
        "tokenizer's files.",
        look=right_end,
        at_start=True,
    ),
    Check(
        name="mask",
        proves="The trained tokens are the words of the answers and their ends, and nothing else.",
        matters="Which tokens are trained is decided by a mask that nobody sees. Stock templates of Llama "
        "3.1, Qwen 3 and Gemma 3 gave a mask of zeros elsewhere: the loss looked normal and nothing was "
        "learned (marin#7237). A mask that is off by one trains the question, or not the end.",
        mend="Look at the rows below the table: what is trained stands in brackets or in green. Mend the "
        "chat template, so that a question is the beginning of its answered conversation, or train one "
        "answer a row (--turns last).",
        look=mask,
        at_start=True,
    ),
)
"""Checks of answers as tokens."""
