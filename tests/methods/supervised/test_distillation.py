"""A student takes over its teacher's distributions: another model's, or its own with a context in front."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import kl_div, nll_loss
from transformers import LlamaConfig, LlamaForCausalLM

from plaudit.data.records import Demonstration, Message, assistant_turn, user_turn
from plaudit.data.transforms import with_context
from plaudit.engine.distributed import single_process
from plaudit.engine.metrics import values_of
from plaudit.engine.step import Stepper, held_out_evaluator, take_step
from plaudit.errors import UserError
from plaudit.losses.supervised import forward_kl, jensen_shannon, reverse_kl
from plaudit.methods.supervised import distillation
from plaudit.methods.supervised.objective import SupervisedMicrobatch, likelihood_objective, microbatches_of
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.tokenizer import load_tokenizer
from tests.tokens.families_bracketed import GEMMA, LLAMA2, MISTRAL
from tests.tokens.families_headed import CHATML
from tests.tokens.families_odd import WORDS
from tests.tokens.family import folder

CONTEXT = "Be brief. Name three fruits: pear, fig, plum."


def model(seed, *, vocabulary=37, hidden=32, spread=0.02, dtype=torch.float32):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=spread,
    )
    return Policy(LlamaForCausalLM(config).to(dtype))


def rows(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(length):
        return tuple(torch.randint(3, 37, (length,), generator=generator).tolist())

    return [
        Example(
            prompt=draw(3 + n % 3),
            completions=(Completion(ids=draw(4 + n), mask=(True,) * (3 + n) + (False,), finished=True),),
            origin=f"a.jsonl:{n}",
        )
        for n in range(count)
    ]


def whole(examples):
    return SupervisedMicrobatch(
        examples=tuple(examples), total_tokens=sum(one.trained_tokens for one in examples)
    )


def trained(policy, objective, examples, steps):
    optimizer = torch.optim.AdamW(policy.parameters(), weight_decay=0.0)
    stepper = Stepper(
        module=policy, optimizer=optimizer, objective=objective, clip=1.0, ranks=single_process()
    )
    losses = []
    for step in range(steps):
        rate = 1e-2 * (1 - step / steps)
        outcome = take_step(stepper, microbatches_of(examples, single_process(), 64), rate)
        assert outcome.fault is None
        losses.append(values_of(outcome.metrics)["loss"])
    return losses


def full_tables(policy, example):
    """Log-probs of the plain model for one row's trained tokens."""
    (answer,) = example.completions
    with policy.as_plain_model() as plain, torch.no_grad():
        ids = torch.tensor([example.prompt + answer.ids])
        logits = plain(input_ids=ids, use_cache=False).logits[0, len(example.prompt) - 1 : -1]
    return logits[torch.tensor(answer.mask)].log_softmax(-1)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [forward_kl, reverse_kl, jensen_shannon])
def test_a_small_student_takes_over_what_a_larger_teacher_thinks(divergence):
    teacher, student, examples = model(1, hidden=48, spread=0.15), model(2), rows()
    objective = distillation.distillation_objective(student, teacher, divergence)
    losses = trained(student, objective, examples, 100)
    assert losses[0] > 0.05
    assert losses[-1] < 0.02 * losses[0]
    apart = [forward_kl(full_tables(teacher, row), full_tables(student, row)) for row in examples]
    assert torch.cat(apart).mean() < 0.01
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_the_loss_is_the_mean_over_trained_tokens_of_the_plain_models_divergence(layout):
    policies = teacher, student = (
        model(1, hidden=48, spread=0.2, dtype=torch.float64),
        model(2, spread=0.2, dtype=torch.float64),
    )
    examples = rows()
    expected = [
        reverse_kl(full_tables(teacher, row), full_tables(student, row)).sum().item() for row in examples
    ]
    for policy in policies:
        policy.use_layout(layout)
    piece = whole(examples)
    terms = distillation.distillation_objective(student, teacher, reverse_kl)(piece)
    # Llama's norms and the packed attention compute in float32 inside.
    assert terms.loss_N.tolist() == pytest.approx(expected, rel=1e-5)
    assert terms.loss.item() == pytest.approx(sum(expected) / piece.total_tokens, rel=1e-5)
    assert terms.origin_N == tuple(row.origin for row in examples)
    assert values_of(terms.metrics)["loss"] == pytest.approx(terms.loss.item(), rel=1e-12)
    right = sum(
        int((full_tables(student, row).argmax(-1) == torch.tensor(row.completions[0].ids[:-1])).sum())
        for row in examples
    )
    assert values_of(terms.metrics)["token_accuracy"] == right / piece.total_tokens


def gradient(student, objective):
    student.zero_grad()
    terms = objective(whole(rows()))
    terms.loss.backward()
    return terms, torch.cat([parameter.grad.flatten() for parameter in student.parameters()])


@pytest.mark.parametrize("hard", [0.3, 1.0])
def test_hard_targets_are_a_share_of_the_loss_beside_the_teachers(hard):
    """torch's own two losses on the plain models' tables, and the two gradients in their shares."""
    teacher, student = (model(seed, spread=0.2, dtype=torch.float64) for seed in (1, 2))
    soft = nll = 0.0
    for row in rows():
        tables = full_tables(teacher, row), full_tables(student, row)
        soft += kl_div(tables[1], tables[0], log_target=True, reduction="sum").item()
        nll += nll_loss(tables[1], torch.tensor(row.completions[0].ids[:-1]), reduction="sum").item()
    terms, found = gradient(
        student, distillation.distillation_objective(student, teacher, forward_kl, hard_weight=hard)
    )
    tokens = whole(rows()).total_tokens
    assert terms.loss.item() == pytest.approx(((1 - hard) * soft + hard * nll) / tokens, rel=1e-5)
    assert values_of(terms.metrics)["divergence"] == pytest.approx(soft / tokens, rel=1e-5)
    of_teacher = gradient(student, distillation.distillation_objective(student, teacher, forward_kl))[1]
    of_answers = gradient(student, likelihood_objective(student))[1]
    # Llama's norms and the packed attention compute in float32 inside.
    torch.testing.assert_close(found, (1 - hard) * of_teacher + hard * of_answers, rtol=1e-5, atol=1e-7)
    assert found.abs().max() > 1e-3


def test_pieces_add_up_to_the_gradient_of_the_whole():
    teacher, student = model(1, dtype=torch.float64), model(2, dtype=torch.float64)
    objective = distillation.distillation_objective(student, teacher, jensen_shannon)
    piece = whole(rows())
    muted = replace(
        piece.examples[0], completions=(replace(piece.examples[0].completions[0], mask=(False,) * 4),)
    )
    grads = []
    for pieces in ([piece], [*piece.rows(), replace(piece, examples=(muted,))]):
        student.zero_grad()
        for one in pieces:
            objective(one).loss.backward()
        grads.append(torch.cat([parameter.grad.flatten() for parameter in student.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=1e-8)
    assert grads[0].abs().max() > 1e-4


def test_held_out_figures_are_the_objectives_own():
    teacher, student, examples = model(1, spread=0.15), model(2), rows()
    objective = distillation.distillation_objective(student, teacher, forward_kl)
    microbatches = microbatches_of(examples, single_process(), 16)
    figures = values_of(
        held_out_evaluator(
            objective, microbatches, single_process(), {"divergence": distillation.DIVERGENCE_METRIC}
        )(lambda: None)
    )
    expected = values_of(objective(whole(examples)).metrics)
    assert set(figures) == {"held_out/divergence"}
    assert figures["held_out/divergence"] == pytest.approx(expected["loss"], rel=1e-5)


def test_another_vocabulary_is_refused_before_anything_runs():
    with pytest.raises(UserError, match="37 tokens and the teacher's 41"):
        distillation.distillation_objective(model(1), model(2, vocabulary=41), forward_kl)


def test_another_tokenizer_is_refused_by_its_first_different_token(tmp_path):
    bytes_, words = (load_tokenizer(folder(tmp_path / one.kind, one)) for one in (CHATML, WORDS))
    distillation.refuse_other_tokenizer(bytes_, bytes_)
    with pytest.raises(UserError, match=r"the token '.+' is number"):
        distillation.refuse_other_tokenizer(bytes_, words)


def test_an_unknown_divergence_is_named_with_the_known_ones():
    assert distillation.divergence_named("js") is jensen_shannon
    with pytest.raises(UserError, match="'kl'; it is one of forward, reverse, js"):
        distillation.divergence_named("kl")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(folder(tmp_path_factory.mktemp("chat"), CHATML))


def chat(question, answer, origin=""):
    return Demonstration(prompt=user_turn(question), completion=assistant_turn(answer), origin=origin)


CHATS = [chat("Hi.", "Hello."), chat("How are you?", "Fine, thanks."), chat("And you?", "Well.")]


@pytest.mark.slow
def test_with_a_distilled_context_the_student_agrees_without_it(encoder):
    student = model(3, vocabulary=len(encoder.info.tokenizer), spread=0.15)
    teacher = distillation.frozen_copy(student)
    taught = distillation.encode_with_context(CHATS, encoder, CONTEXT)
    assert not taught.encoding.refused
    examples = taught.encoding.examples
    objective = distillation.distillation_objective(student, teacher, forward_kl, taught.teacher_prompts)
    losses = trained(student, objective, examples, 60)
    assert losses[0] > 0.05
    assert losses[-1] < 0.02 * losses[0]
    for row, record in zip(examples, CHATS, strict=True):
        with_it = encoder.encode(with_context(record, CONTEXT).prompt, (record.completion,))
        told = full_tables(teacher, with_it)
        before, after = (forward_kl(told, full_tables(one, row)).mean() for one in (teacher, student))
        assert after < 0.1 * before


def test_the_teachers_prompt_carries_the_context_and_the_answer_is_the_same(encoder):
    taught = distillation.encode_with_context(CHATS, encoder, CONTEXT)
    for row, record in zip(taught.encoding.examples, CHATS, strict=True):
        assert row == encoder.encode(record.prompt, (record.completion,))
        asked = encoder.info.decode(taught.teacher_prompts[row.prompt_id])
        assert asked.startswith(f"<|im_start|>system\n{CONTEXT}<|im_end|>\n<|im_start|>user\n")


def test_plain_text_gets_the_context_as_a_prefix(encoder):
    record = Demonstration(prompt="Hi.", completion=" Hello.")
    (asked,) = distillation.encode_with_context([record], encoder, CONTEXT).teacher_prompts.values()
    assert f"{CONTEXT}\n\nHi.<|im_end|>" in encoder.info.decode(asked)


def test_a_row_whose_context_would_be_cut_is_refused_and_the_others_stay(encoder):
    long = chat("How are you? " * 20, "Well.", origin="a.jsonl:7")
    taught = distillation.encode_with_context([*CHATS, long], encoder, CONTEXT, max_tokens=100)
    assert len(taught.encoding.examples) == len(CHATS)
    (refused,) = taught.encoding.refused
    assert refused.origin == "a.jsonl:7"
    assert "cutting it would cut the context" in refused.reason


def test_a_template_that_moves_the_context_between_answers_is_not_asked_to(tmp_path):
    encoder = make_encoder(folder(tmp_path, MISTRAL))
    turns = (*assistant_turn("Hello."), Message(role="user", content="And you?"), *assistant_turn("Well."))
    record = Demonstration(prompt=user_turn("Hi."), completion=turns)
    taught = distillation.encode_with_context([record], encoder, CONTEXT)
    assert not taught.encoding.refused
    (asked,) = taught.teacher_prompts.values()
    assert CONTEXT in encoder.info.decode(asked)


@pytest.mark.parametrize(
    ("family", "place"), [(CHATML, "system"), (LLAMA2, "system"), (GEMMA, "user"), (MISTRAL, "user")]
)
def test_the_context_goes_where_the_template_keeps_it(tmp_path, family, place):
    encoder = make_encoder(folder(tmp_path, family))
    assert distillation.context_role(encoder) == place
    taught = distillation.encode_with_context(CHATS[:1], encoder, CONTEXT)
    assert not taught.encoding.refused
    (asked,) = taught.teacher_prompts.values()
    assert CONTEXT in encoder.info.decode(asked)


def test_an_empty_context_stops_the_run(encoder):
    with pytest.raises(UserError, match="the context is empty"):
        distillation.encode_with_context(CHATS, encoder, "  ")


def test_a_row_that_has_no_teachers_prompt_is_named():
    policy = model(1)
    objective = distillation.distillation_objective(policy, distillation.frozen_copy(policy), forward_kl, {})
    with pytest.raises(UserError, match=r"a\.jsonl:0: the teacher has no prompt .* encode_with_context"):
        objective(whole(rows()))


def test_batches_of_several_answers_are_read_in_the_same_order():
    teacher, student = model(1, spread=0.2), model(2, spread=0.2)
    one = rows()[0]
    two = replace(one, completions=(*one.completions, *rows()[3].completions))
    assert batch_of([two]).mask_NT.shape == (2, 7)
    alone_ = [replace(two, completions=(answer,)) for answer in two.completions]
    objective = distillation.distillation_objective(student, teacher, forward_kl)
    together, apart = objective(whole([two])), objective(whole(alone_))
    torch.testing.assert_close(together.loss_N, apart.loss_N, rtol=1e-4, atol=1e-6)
