"""Everything that tests of text and tokens break, and which checks must see it."""

from dataclasses import replace

from plaudit.tokens import batch, encode, microbatch
from tests.engine.toy import TEMPLATE
from tests.preflight.breakers_text import (
    ASSISTANT,
    Broken,
    Stopless,
    all_places,
    altered,
    answers,
    asks_otherwise,
    bos_of,
    conversations,
    cut_apart,
    from_the_right,
    long_prompts,
    masked,
    moved,
    not_at_all,
    padded_positions,
    up_to_pad,
    without_last,
    without_pads,
)

BROKEN = (
    Broken(
        name="a BOS before every answer",
        encoder=answers(
            lambda one, encoder: replace(one, ids=(bos_of(encoder), *one.ids), mask=(False, *one.mask))
        ),
        fails=frozenset({"one-bos", "prompt-prefix", "mask"}),
        says="one-bos: dpo.jsonl:1: a BOS between prompt and answer",
        method="dpo",
    ),
    Broken(
        name="a second BOS at the start",
        encoder=altered(lambda one, encoder: replace(one, prompt=(bos_of(encoder), *one.prompt))),
        fails=frozenset({"one-bos", "prompt-prefix"}),
        says="one-bos: sft.jsonl:1: two BOS tokens at the start",
    ),
    Broken(
        name="no BOS",
        encoder=altered(lambda one, _: replace(one, prompt=one.prompt[1:])),
        fails=frozenset({"one-bos", "prompt-prefix"}),
        says="one-bos: sft.jsonl:1: the tokenizer begins texts with BOS, and this row does not",
    ),
    Broken(
        name="a template with a BOS before the assistant",
        template=TEMPLATE.replace(
            "<|im_start|>", "{{ bos_token if m['role'] == 'assistant' }}<|im_start|>", 1
        ).replace(ASSISTANT, ASSISTANT.replace("<|im_start|>", "{{ bos_token }}<|im_start|>")),
        fails=frozenset({"one-bos"}),
        says="one-bos: sft.jsonl:1: 2 BOS tokens in a row of 1 questions",
    ),
    Broken(
        name="two ends",
        encoder=answers(lambda one, _: replace(one, ids=(*one.ids, one.ids[-1]), mask=(*one.mask, True))),
        fails=frozenset({"end-of-turn", "mask", "stop-tokens"}),
        says="end-of-turn: sft.jsonl:",
    ),
    Broken(
        name="an end that is not trained",
        encoder=masked(lambda mask: (*mask[:-1], False)),
        fails=frozenset({"end-of-turn", "mask"}),
        says="the end-of-turn token is not trained; the answer ends in",
    ),
    Broken(
        name="no end",
        encoder=answers(without_last),
        fails=frozenset({"end-of-turn", "mask", "truncation"}),
        says="the answer has no end-of-turn token",
        method="dpo",
    ),
    Broken(
        name="a model that does not stop at the end",
        encoder=lambda one: Stopless(
            info=one.info, chat_format=one.chat_format, turns=one.turns, notes=one.notes
        ),
        fails=frozenset({"end-of-turn", "stop-tokens"}),
        says="end-of-turn: the template ends answers with '<|im_end|>', which is no stop token of the model",
    ),
    Broken(
        name="a template with an end that is no special token",
        template=TEMPLATE.replace("<|im_end|>", "<|fin|>"),
        tokens=("<|fin|>",),
        fails=frozenset({"end-of-turn"}),
        says="end-of-turn: the template ends answers with '<|fin|>', which is no stop token of the model",
    ),
    Broken(
        name="a template that opens no answer",
        template=TEMPLATE.partition("{% if add_generation_prompt %}")[0],
        fails=frozenset({"template"}),
        says="it writes '<|im_start|>assistant\\n' before an answer and leaves it out where one is asked for",
    ),
    Broken(
        name="a mask of zeros",
        encoder=masked(lambda mask: (False,) * len(mask)),
        fails=frozenset({"mask", "end-of-turn", "gradient-flow"}),
        says="no token is trained",
    ),
    Broken(
        name="a mask that begins a token early",
        encoder=moved(trained=True),
        fails=frozenset({"mask", "prompt-prefix"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    Broken(
        name="a mask that begins a token late",
        encoder=masked(lambda mask: (False, *mask[1:])),
        fails=frozenset({"mask"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    Broken(
        name="the user's turns are trained too",
        encoder=masked(lambda mask: (True,) * len(mask)),
        rows=conversations(),
        fails=frozenset({"mask", "stop-tokens"}),
        says="mask: own.jsonl:1: 1 stretches are trained, and the row has 2 answers to learn",
    ),
    Broken(
        name="an answer that lost a word",
        encoder=answers(lambda one, _: replace(one, ids=one.ids[1:], mask=one.mask[1:])),
        fails=frozenset({"mask", "prompt-prefix"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    Broken(
        name="a prompt that ends a token early",
        encoder=moved(trained=False),
        fails=frozenset({"prompt-prefix"}),
        says="prompt-prefix: sft.jsonl:1: from token 17 on",
    ),
    Broken(
        name="a prompt in other tokens",
        encoder=altered(cut_apart),
        fails=frozenset({"prompt-prefix"}),
        says="is trained, and transformers asks",
    ),
    Broken(
        name="a sampler that asks otherwise",
        method="grpo",
        subject=asks_otherwise,
        fails=frozenset({"prompt-prefix", "rollout-tokens"}),
        says="prompt-prefix: drawing an answer to",
    ),
    Broken(
        name="a template that cuts long turns",
        template=TEMPLATE.replace("m['content']", "m['content'][:60]"),
        fails=frozenset({"template"}),
        says="the template leaves out words of turn 1, the user turn of a conversation of user, assistant",
    ),
    Broken(
        name="a template that changes the order",
        template="{% for m in messages if m['role'] == 'user' %}U {{ m['content'] }}\n{% endfor %}"
        + TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'user' %}"),
        rows=conversations(history=True),
        fails=frozenset({"template"}),
        says="the template changes the order of the turns of a conversation of user, assistant, user, "
        "assistant",
    ),
    Broken(
        name="a template in which an empty system turn takes the next one along",
        template="{% set skip = messages[0]['role'] == 'system' and not messages[0]['content'] %}"
        "{% set messages = messages[2:] if skip else messages %}" + TEMPLATE,
        rows=conversations(system="", history=True),
        fails=frozenset({"template"}),
        says="the template leaves out words of turn 2, the user turn of a conversation of an empty system "
        "turn",
    ),
    Broken(
        name="answers are cut at their ends",
        patches=((encode, "truncate_prompt", from_the_right),),
        settings={"max_length": 25},
        fails=frozenset({"truncation", "end-of-turn"}),
        says="without end",
    ),
    Broken(
        name="nothing is cut",
        patches=((encode, "truncate_prompt", not_at_all),),
        settings={"max_length": 30},
        fails=frozenset({"truncation"}),
        says="tokens, and max_length is 30",
    ),
    Broken(
        name="nearly every prompt is cut",
        rows=long_prompts(),
        settings={"max_length": 40},
        fails=frozenset({"truncation"}),
        says="24 a prompt that is cut",
    ),
    Broken(
        name="a batch that does not train tokens of padding",
        patches=((batch, "batch_of", without_pads),),
        fails=frozenset({"pad-not-trained"}),
        says="an answer that says token 0: ",
    ),
    Broken(
        name="a batch that trains its padding",
        patches=((batch, "batch_of", all_places),),
        fails=frozenset({"pad-not-trained"}),
        says="places of padding are trained",
        method="grpo",
    ),
    Broken(
        name="a batch whose rows end at their first padding",
        patches=((batch, "batch_of", up_to_pad),),
        fails=frozenset({"pad-not-trained"}),
        says="some count as padding",
    ),
    Broken(
        name="a layout that counts padding",
        patches=((microbatch, "layout_batch", padded_positions),),
        fails=frozenset({"pad-not-trained"}),
        says="laid out left, padding is counted as part of the text",
        method="reward",
    ),
)
