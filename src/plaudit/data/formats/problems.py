"""Layouts of questions: Alpaca's, Dolly's, Orca's pairs, GSM8K; and of what can be checked: MATH, verl's,
APPS, CodeContests, IFEval, and PRM800K's steps.

An instruction becomes a conversation, which the model's own template writes. What is checked stands where
rewards look for it: a result as the reference answer, programs' tests as ``tests``. (Taori et al. 2023,
Stanford Alpaca; Conover et al. 2023, Dolly; Cobbe et al. 2021, https://arxiv.org/abs/2110.14168; Hendrycks et
al. 2021, https://arxiv.org/abs/2103.03874 and https://arxiv.org/abs/2105.09938; Yu et al. 2025,
https://arxiv.org/abs/2503.14476; Li et al. 2022, https://arxiv.org/abs/2203.07814; Lightman et al. 2023,
https://arxiv.org/abs/2305.20050.)
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from plaudit.data.fields import BadRowError, Node, optional_items, optional_name, read_json
from plaudit.data.formats import layout
from plaudit.data.records import Comparison, Demonstration, Prompt, Record, Steps, assistant_turn, user_turn
from plaudit.data.turns import Turns, read_prompt, require_not_empty

_BOX = "\\boxed{"


def _math(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    prompt, answer = user_turn(question(row, "problem")), row.optional("answer")
    yield Demonstration(
        prompt=prompt,
        completion=layout.read_response(row.get("solution"), prompt),
        answer=last_box(row.get("solution").text()) if answer is None else answer.name(),
        category=layout.optional_category(row, "type") or layout.optional_category(row, "subject"),
    )


def last_box(solution: str) -> str | None:
    r"""What stands in the last ``\boxed{…}`` of a solution; None where none is closed.

    >>> last_box(r"So \boxed{1}, or better: $\boxed{\frac{1}{2}}$."), last_box("4")
    ('\\frac{1}{2}', None)
    """
    start, depth = solution.rfind(_BOX) + len(_BOX), 1
    if start < len(_BOX):
        return None
    for end in range(start, len(solution)):
        depth += (solution[end] == "{") - (solution[end] == "}")
        if depth == 0:
            return solution[start:end]
    return None


def _verl(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    prompt = read_prompt(row.get("prompt"))
    metadata = layout.other_fields(row, "prompt", "reward_model", layout.TOOLS_FIELD)
    yield Prompt(prompt=prompt, answer=row.get("reward_model").get("ground_truth").name(), metadata=metadata)


def _truth(rule: Node) -> object:
    node = rule.optional("ground_truth")
    return None if node is None else node.value


def _apps(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    cases = read_json(row.get("input_output"), "an object with inputs and outputs, or its JSON")
    name, start = cases.optional("fn_name"), row.optional("starter_code")
    code = "" if start is None else start.text()
    words = "\n\n".join(part for part in (question(row, "question"), code) if part.strip())
    if name is None:
        tests: Sequence[object] = [*_printed(cases, "inputs", "outputs")]
    else:
        call = f"Solution().{name.text()}" if "class Solution" in code else name.text()
        tests = [*_asserted(cases, call)]
    return (_program(row, words, tests, "input_output"),)


def _code_contests(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    groups = [row.optional(f"{kind}_tests") for kind in ("public", "private", "generated")]
    tests = [test for group in groups if group is not None for test in _printed(group, "input", "output")]
    return (_program(row, question(row, "description"), tests, "public_tests"),)


def _program(row: Node, words: str, tests: Sequence[object], field: str) -> Prompt:
    if not tests:
        raise BadRowError("empty side", field, expected="one test or more", found="none")
    more = {name: row.get(name).value for name in ("difficulty", "name") if row.optional(name) is not None}
    return Prompt(prompt=user_turn(words), metadata={"tests": [*tests], **more})


def _pairs(cases: Node, given: str, wanted: str) -> Iterator[tuple[Node, Node]]:
    inputs, outputs = (cases.get(name).items() for name in (given, wanted))
    if len(inputs) != len(outputs):
        expected = f"{len(inputs)} of both"
        raise BadRowError("wrong value", cases.path, expected=expected, found=f"{len(outputs)} {wanted}")
    yield from zip(inputs, outputs, strict=True)


def _printed(cases: Node, given: str, wanted: str) -> Iterator[dict[str, str]]:
    for read, printed in _pairs(cases, given, wanted):
        yield {"input": _lines(read), "output": _lines(printed)}


def _lines(node: Node) -> str:
    return "\n".join(line.text() for line in node.items()) if isinstance(node.value, list) else node.text()


def _asserted(cases: Node, call: str) -> Iterator[str]:
    for given, wanted in _pairs(cases, "inputs", "outputs"):
        arguments = ", ".join(repr(item.value) for item in given.items())
        # The data set wraps most results in a list of one, and its own checker takes either.
        results = (wanted.value, *(wanted.value[:1] if isinstance(wanted.value, list) else ()))
        yield f"assert {call}({arguments}) in {results!r}"


def _ifeval(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    kwargs = [
        layout.other_fields(read_json(item, "an object, or its JSON")) for item in row.get("kwargs").items()
    ]
    kinds = [kind.name() for kind in row.get("instruction_id_list").items()]
    if len(kinds) != len(kwargs):
        raise BadRowError("wrong value", "kwargs", expected=f"{len(kinds)} objects", found=str(len(kwargs)))
    return (_instructed(row, "prompt", kinds, kwargs),)


def _instructed(row: Node, field: str, kinds: Sequence[str], kwargs: Sequence[object]) -> Prompt:
    checked = {"instruction_id_list": [*kinds], "kwargs": [*kwargs]}
    metadata = layout.other_fields(row, field, layout.TOOLS_FIELD) | checked
    return Prompt(prompt=read_prompt(row.get(field)), metadata=metadata)


def _rlvr_ifeval(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    """Tülu's functions as kinds of IFEval; a number that is to be met exactly, or about, is two of them."""
    truth = read_json(row.get("ground_truth"), FUNCTION.name)
    functions = tomllib.loads((Path(__file__).parent / "registry" / "functions.toml").read_text("utf-8"))
    name = truth.get("func_name").name()
    if name not in functions:
        raise truth.get("func_name").error("wrong value", "one of Tülu's functions of IFEval")
    entry = functions[name]
    arguments = {field: truth.get(source).value for field, source in entry.get("fields", {}).items()}
    kwargs = [arguments]
    if "number" in entry:
        quantifier = truth.get("quantifier").text() if "around" in entry else "exactly"
        kwargs = [
            arguments | {entry["number"]: count, entry["relation"]: relation}
            for relation, count in _bounds(int(truth.get("N").number()), quantifier, entry.get("around", 0))
        ]
    return (_instructed(row, "messages", [entry["id"]] * len(kwargs), kwargs),)


def _bounds(number: int, quantifier: str, around: float) -> Iterator[tuple[str, int]]:
    slack = max(round(number * around), 1) if quantifier == "around" else 0
    if quantifier != "at most":
        yield "at least", number - slack
    if quantifier != "at least":
        yield "less than", number + slack + 1


_LabelledSteps = tuple[tuple[str, float], ...]


def _prm800k(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    """The solution that the labeller followed; each rated step beside it is a solution that ends there."""
    problem = row.get("question").get("problem").text()
    for solution in _solutions(row.get("label").get("steps"), options.neutral):
        steps, labels = zip(*solution, strict=True)
        yield Steps(prompt=problem, steps=steps, labels=labels, annotator=optional_name(row, "labeler"))


def _solutions(steps: Node, neutral: float) -> Iterator[_LabelledSteps]:
    followed: _LabelledSteps = ()
    for step in steps.items():
        completions = optional_items(step, "completions")
        chosen_index = _chosen_index(step, len(completions))
        for i, completion in enumerate(completions):
            label = _label(completion, neutral)
            # A side step ends its own solution: nobody rated what would have followed it.
            if i != chosen_index and label is not None:
                yield (*followed, (_step_text(completion), label))
        followed_step = (
            completions[chosen_index] if chosen_index is not None else step.optional("human_completion")
        )
        if followed_step is None:
            break
        # What the labeller wrote in place of all completions counts as right.
        label = 1.0 if chosen_index is None else _label(followed_step, neutral)
        # Beyond a step that nobody rated, nothing is known of the solution.
        if label is None:
            break
        followed = (*followed, (_step_text(followed_step), label))
    if followed:
        yield followed


def _chosen_index(step: Node, count: int) -> int | None:
    node = step.optional("chosen_completion")
    if node is None:
        return None
    index = int(node.number())
    if not 0 <= index < count:
        raise BadRowError("wrong value", node.path, expected=f"an index below {count}", found=str(index))
    return index


def _label(completion: Node, neutral: float) -> float | None:
    node = completion.optional("rating")
    if node is None:
        return None
    if node.value not in (-1, 0, 1):
        raise node.error("wrong value", "-1, 0 or 1")
    return {-1.0: 0.0, 0.0: neutral, 1.0: 1.0}[node.number()]


def _step_text(completion: Node) -> str:
    text = completion.get("text")
    return str(require_not_empty(text.text(), text.path))


CASES = layout.FieldType(
    name="an object with inputs and outputs, or its JSON",
    matches=lambda node: (
        layout.OBJECT.matches(node) or (isinstance(node.value, str) and '"inputs"' in node.value)
    ),
)
TRUTH = layout.FieldType(
    name="an object with a ground_truth",
    matches=lambda node: isinstance(node.value, Mapping) and isinstance(_truth(node), str | int),
)
"""What an answer is compared with; a dictionary there is for a reward of one's own."""

LIST = layout.FieldType(name="a list", matches=lambda node: isinstance(node.value, list | tuple))
FUNCTION = layout.FieldType(
    name="the JSON of an object with func_name",
    matches=lambda node: isinstance(node.value, str) and '"func_name"' in node.value,
    special_case_of="an answer",
)

PROBLEM_FORMATS = (
    layout.RowFormat(
        name="math",
        title="MATH",
        schema={"problem": layout.TEXT, "solution": layout.TEXT},
        optional_fields=frozenset(["answer", "level", "type", "subject", "unique_id"]),
        excluded_fields=frozenset(["messages", "prompt", "completion", "chosen", "rejected"]),
        parse=_math,
        produces="demonstration; `answer`, or else the last \\boxed{…}, is its reference answer",
        is_generic=True,
        takes_label=True,
    ),
    layout.RowFormat(
        name="verl",
        title="verl (DAPO-Math-17K)",
        schema={"prompt": layout.TEXT_OR_MESSAGES, "reward_model": TRUTH},
        optional_fields=None,
        parse=_verl,
        produces="prompt; `reward_model.ground_truth` is the reference, other fields are metadata",
        is_generic=True,
    ),
    layout.RowFormat(
        name="apps",
        title="APPS",
        schema={"question": layout.TEXT, "input_output": CASES},
        optional_fields=None,
        parse=_apps,
        produces="prompt with `tests` for the reward `code`; the solutions are not read",
    ),
    layout.RowFormat(
        name="code-contests",
        title="CodeContests",
        schema={"description": layout.TEXT, "public_tests": layout.OBJECT},
        optional_fields=None,
        parse=_code_contests,
        produces="prompt with all three kinds of tests as `tests`; the solutions are not read",
    ),
    layout.RowFormat(
        name="ifeval",
        title="IFEval and IFBench",
        schema={"prompt": layout.TEXT_OR_MESSAGES, "instruction_id_list": layout.TEXTS, "kwargs": LIST},
        optional_fields=None,
        parse=_ifeval,
        produces="prompt with its `instruction_id_list` and `kwargs` for the reward `instructions`",
        is_generic=True,
    ),
    layout.RowFormat(
        name="rlvr-ifeval",
        title="Tülu's RLVR-IFeval",
        schema={"messages": layout.ENDS_WITH_USER, "ground_truth": FUNCTION},
        optional_fields=None,
        parse=_rlvr_ifeval,
        produces="prompt for the reward `instructions`: the function of `ground_truth` as kinds of IFEval",
    ),
    layout.RowFormat(
        name="prm800k",
        title="PRM800K",
        schema={"question": layout.OBJECT, "label": layout.OBJECT},
        optional_fields=frozenset(["labeler"]),
        parse=_prm800k,
        without_records="problems without a labelled step",
        produces="steps: the path followed and each rated side step; a neutral 0 is 0.5, or what `neutral` "
        "says",
    ),
)


_FINAL = "####"


def question(row: Node, field: str) -> str:
    words = row.get(field).text()
    if not words.strip():
        raise row.get(field).error("empty side", "a question")
    return words


def question_turns(row: Node, field: str, more: str = "") -> Turns:
    """The question, with the text of a further field under it, behind the turns of ``history``."""
    words = question(row, field)
    context = row.optional(more) if more else None
    if context is not None and context.text().strip():
        words = f"{words}\n\n{context.text()}"
    turns: list[Turns] = []
    for pair in optional_items(row, "history"):
        sides = pair.items()
        if len(sides) != 2:
            raise pair.wrong_type_error("a question and its answer")
        turns += [user_turn(sides[0].text()), assistant_turn(sides[1].text())]
    return (*tuple(message for turn in turns for message in turn), *user_turn(words))


def _alpaca(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    prompt = question_turns(row, "instruction", "input")
    completion, category = (
        layout.read_response(row.get("output"), prompt),
        layout.optional_category(row, "category"),
    )
    return (Demonstration(prompt=prompt, completion=completion, category=category),)


def _alpaca_pair(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    prompt, category = question_turns(row, "instruction", "input"), layout.optional_category(row, "category")
    chosen, rejected = (layout.read_response(row.get(side), prompt) for side in ("chosen", "rejected"))
    layout.require_different(chosen, rejected, "chosen, rejected")
    return (Comparison(prompt=prompt, chosen=chosen, rejected=rejected, category=category),)


def _gsm8k(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    prompt = question_turns(row, "question")
    completion = layout.read_response(row.get("answer"), prompt)
    final = row.get("answer").text().rpartition(_FINAL)[2].strip()
    if not final:
        raise BadRowError("empty side", "answer", expected=f"a result behind {_FINAL}", found="none")
    return (Demonstration(prompt=prompt, completion=completion, answer=final),)


SOLUTION = layout.FieldType(
    name=f"a text with {_FINAL} before its result",
    matches=lambda node: isinstance(node.value, str) and _FINAL in node.value,
    special_case_of="a text",
)

INSTRUCTION_FORMATS = (
    layout.RowFormat(
        name="alpaca",
        title="Alpaca instructions",
        schema={"instruction": layout.TEXT, "output": layout.TEXT},
        optional_fields=frozenset(["input", "history", "category"]),
        excluded_fields=frozenset(["chosen", "rejected", "completions"]),
        parse=_alpaca,
        produces="demonstration; `input` stands under the instruction, `history` before it",
        is_generic=True,
        takes_label=True,
    ),
    layout.RowFormat(
        name="alpaca-preference",
        title="Alpaca instructions with two answers",
        schema={"instruction": layout.TEXT, "chosen": layout.TEXT, "rejected": layout.TEXT},
        optional_fields=frozenset(["input", "history", "category"]),
        parse=_alpaca_pair,
        produces="comparison",
        is_generic=True,
    ),
    layout.RowFormat(
        name="gsm8k",
        title="GSM8K",
        schema={"question": layout.TEXT, "answer": SOLUTION},
        parse=_gsm8k,
        produces="demonstration; what stands behind the last #### is its reference answer",
        is_generic=True,
        takes_label=True,
    ),
)
