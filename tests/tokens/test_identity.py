"""What identifies a row: its content to the last bit of its extras, and never where it came from."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.errors import UserError
from plaudit.tokens.batch import Axis, Completion, Example, Extra, Extras, batch_of, join_completions
from plaudit.tokens.prompts import EncodedPrompt

IDS = st.lists(st.integers(0, 200_000), min_size=1, max_size=4).map(tuple)
AXES: tuple[Axis, ...] = ("prompt", "completion", "item")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An example as plain values: the checks of shapes and types use numbers that strategies may not."""

    prompt: tuple[int, ...]
    completions: list[tuple[tuple[int, ...], tuple[bool, ...], bool]]
    extras: dict[Axis, tuple[bool, list[float]]]

    def example(self) -> Example:
        return Example(
            prompt=self.prompt,
            completions=tuple(
                Completion(ids=ids, mask=mask, finished=finished) for ids, mask, finished in self.completions
            ),
            extras={
                axis: Extra(
                    value=torch.tensor(values, dtype=torch.float64 if wide else torch.bfloat16), axis=axis
                )
                for axis, (wide, values) in self.extras.items()
            },
            origin="a:1",
        )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    answers: list[tuple[tuple[int, ...], tuple[bool, ...], bool]] = []
    for _ in range(draw(st.integers(1, 3))):
        ids = draw(IDS)
        answers.append((ids, draw(st.tuples(*[st.booleans()] * len(ids))), draw(st.booleans())))
    extras: dict[Axis, tuple[bool, list[float]]] = {}
    for axis in draw(st.lists(st.sampled_from(AXES), unique=True, max_size=3)):
        rows = {"prompt": 1, "completion": len(answers), "item": draw(st.integers(0, 2))}[axis]
        values = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows))
        extras[axis] = (draw(st.booleans()), values)
    return Plan(prompt=draw(IDS), completions=answers, extras=extras)


@settings(max_examples=200, deadline=None)
@given(plan=plans(), other_plan=plans())
def test_ids_are_equal_exactly_where_the_content_is(plan: Plan, other_plan: Plan) -> None:
    one, other = plan.example(), other_plan.example()
    assert one.id == plan.example().id
    assert (one.id == other.id) == (plan == other_plan)
    assert one.id == replace(one, origin="elsewhere").id
    assert (one == replace(other, origin=one.origin)) == (one.id == other.id)
    prompts = [
        (row.prompt, {n: e for n, e in row.extras.items() if e.axis != "completion"}) for row in (one, other)
    ]
    assert (one.prompt_id == other.prompt_id) == (prompts[0] == prompts[1])


@settings(max_examples=60, deadline=None)
@given(plan=plans())
def test_completions_taken_apart_and_joined_are_the_row_again(plan: Plan) -> None:
    row = plan.example()
    singles = [row.select([k]) for k in range(len(row.completions))]
    assert tuple(single.completion_ids[0] for single in singles) == row.completion_ids
    assert {single.prompt_id for single in singles} == {row.prompt_id}
    assert join_completions(singles).id == row.id


def test_ids_are_the_same_on_every_machine_and_in_every_process() -> None:
    row = Example(
        prompt=(1, 70_000),
        completions=(Completion(ids=(7, 2), mask=(False, True), finished=True),),
        extras={"pixel_values": Extra(value=torch.tensor([[0.5, -1.0]]), axis="item")},
    )
    assert (row.id, row.prompt_id) == ID_WRITTEN_DOWN


ID_WRITTEN_DOWN = ("6d4522be6a8040029bd33a0c1e36691c", "dd14012efd66dce5d29d170cd6cb51c2")


@pytest.mark.parametrize("axis", AXES)
def test_any_bit_of_an_extra_counts(axis: Axis) -> None:
    answer = Completion(ids=(7, 2), mask=(True, True), finished=True)

    def row(value: torch.Tensor) -> Example:
        return Example(prompt=(1, 5), completions=(answer,), extras={"x": Extra(value=value, axis=axis)})

    values = [
        torch.zeros(1, 2),
        torch.tensor([[0.0, -0.0]]),
        torch.zeros(1, 2, dtype=torch.float64),
        torch.zeros(1, 2, 1),
        torch.tensor([[0.0, 1e-45]]),
    ]
    assert len({row(value).id for value in values} | {replace(row(values[0]), extras={}).id}) == 6
    assert len({row(value).prompt_id for value in values}) == (1 if axis == "completion" else 5)


def test_a_prompt_to_generate_from_is_the_prompt_of_its_rollouts() -> None:
    picture: Extras = {"pixel_values": Extra(value=torch.ones(1, 3), axis="item")}
    question = EncodedPrompt(text="Which bird?", prompt=(1, 5), extras=picture)
    example = Example(prompt=(1, 5), completions=(), extras=picture)
    assert question.id == example.prompt_id != replace(question, extras={}).id


def test_a_batch_stacks_prompts_and_completions_and_lines_items_up() -> None:
    answer = Completion(ids=(7, 2), mask=(True, True), finished=True)

    def row(k: int, items: int, width: int) -> Example:
        extras = {
            "of_prompt": Extra(value=torch.full((width,), 1.0 + k), axis="prompt", pad=-1),
            "of_completion": Extra(value=torch.arange(k), axis="completion"),
            **({"items": Extra(value=torch.full((items, 2), float(k)), axis="item")} if items else {}),
        }
        return Example(prompt=(1, 5), completions=(answer,) * k, extras=extras)

    batch = batch_of([row(2, 0, 1), row(1, 3, 2), row(3, 1, 2)]).to("cpu")
    assert batch.extras["of_prompt"].value.tolist() == [[3, -1], [2, 2], [4, 4]]
    assert batch.extras["of_completion"].value.tolist() == [0, 1, 0, 0, 1, 2]
    assert batch.extras["items"].value.tolist() == [[1, 1]] * 3 + [[3, 3]]
    assert batch.extras["items"].rows_for([2, 1, 2]).tolist() == [[3, 3], [1, 1], [1, 1], [1, 1], [3, 3]]
    prompt_I = batch.extras["items"].prompt_I
    assert prompt_I is not None
    assert prompt_I.tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({}, r"b:2: the extra 'x' is missing, and other rows of its batch have it"),
        ({"x": Extra(value=torch.ones(1, 2), axis="item")}, r"b:2: the extra 'x' is of axis 'item'"),
        ({"x": Extra(value=torch.ones(2).double(), axis="prompt")}, r"b:2: .*torch.float64"),
        ({"x": Extra(value=torch.ones(3), axis="prompt")}, r"'x' has rows of the shapes \[\(2,\), \(3,\)\]"),
    ],
)
def test_rows_that_declare_an_extra_otherwise_are_refused_by_name(extras: Extras, message: str) -> None:
    answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    first: Extras = {"x": Extra(value=torch.ones(2), axis="prompt")}
    rows = [
        Example(prompt=(1, 5), completions=(answer,), extras=one, origin=origin)
        for one, origin in ((first, "a:1"), (extras, "b:2"))
    ]
    with pytest.raises(UserError, match=message):
        batch_of(rows)


def test_an_extra_of_completions_has_a_row_for_each() -> None:
    with pytest.raises(UserError, match=r"a:1: the extra 'x' has 3 rows for 1 completions"):
        Example(
            prompt=(1,),
            completions=(Completion(ids=(2,), mask=(True,), finished=True),),
            extras={"x": Extra(value=torch.ones(3), axis="completion")},
            origin="a:1",
        )
