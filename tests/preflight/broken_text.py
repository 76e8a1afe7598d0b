"""Everything that tests of text and tokens break, and which checks must see it."""

from dataclasses import replace

from plaudit.tokens import batch, encode, microbatch
from tests.engine.toy import TEMPLATE
from tests.preflight import breakers_text

BROKEN = (
    breakers_text.Broken(
        name="a BOS before every answer",
        encoder=breakers_text.answers(
            lambda one, encoder: replace(
                one, ids=(breakers_text.bos_of(encoder), *one.ids), mask=(False, *one.mask)
            )
        ),
        fails=frozenset({"one-bos", "prompt-prefix", "mask"}),
        says="one-bos: dpo.jsonl:1: a BOS between prompt and answer",
        method="dpo",
    ),
    breakers_text.Broken(
        name="a second BOS at the start",
        encoder=breakers_text.altered(
            lambda one, encoder: replace(one, prompt=(breakers_text.bos_of(encoder), *one.prompt))
        ),
        fails=frozenset({"one-bos", "prompt-prefix"}),
        says="one-bos: sft.jsonl:1: two BOS tokens at the start",
    ),
    breakers_text.Broken(
        name="no BOS",
        encoder=breakers_text.altered(lambda one, _: replace(one, prompt=one.prompt[1:])),
        fails=frozenset({"one-bos", "prompt-prefix"}),
        says="one-bos: sft.jsonl:1: the tokenizer begins texts with BOS, and this row does not",
    ),
    breakers_text.Broken(
        name="a template with a BOS before the assistant",
        template=TEMPLATE.replace(
            "<|im_start|>", "{{ bos_token if m['role'] == 'assistant' }}<|im_start|>", 1
        ).replace(
            breakers_text.ASSISTANT,
            breakers_text.ASSISTANT.replace("<|im_start|>", "{{ bos_token }}<|im_start|>"),
        ),
        fails=frozenset({"one-bos"}),
        says="one-bos: sft.jsonl:1: 2 BOS tokens in a row of 1 questions",
    ),
    breakers_text.Broken(
        name="two ends",
        encoder=breakers_text.answers(
            lambda one, _: replace(one, ids=(*one.ids, one.ids[-1]), mask=(*one.mask, True))
        ),
        fails=frozenset({"end-of-turn", "mask", "stop-tokens"}),
        says="end-of-turn: sft.jsonl:",
    ),
    breakers_text.Broken(
        name="an end that is not trained",
        encoder=breakers_text.masked(lambda mask: (*mask[:-1], False)),
        fails=frozenset({"end-of-turn", "mask"}),
        says="the end-of-turn token is not trained; the answer ends in",
    ),
    breakers_text.Broken(
        name="no end",
        encoder=breakers_text.answers(breakers_text.without_last),
        fails=frozenset({"end-of-turn", "mask", "truncation"}),
        says="the answer has no end-of-turn token",
        method="dpo",
    ),
    breakers_text.Broken(
        name="a model that does not stop at the end",
        encoder=lambda one: breakers_text.Stopless(
            info=one.info, chat_format=one.chat_format, turns=one.turns, notes=one.notes
        ),
        fails=frozenset({"end-of-turn", "stop-tokens"}),
        says="end-of-turn: the template ends answers with '<|im_end|>', which is no stop token of the model",
    ),
    breakers_text.Broken(
        name="a template with an end that is no special token",
        template=TEMPLATE.replace("<|im_end|>", "<|fin|>"),
        tokens=("<|fin|>",),
        fails=frozenset({"end-of-turn"}),
        says="end-of-turn: the template ends answers with '<|fin|>', which is no stop token of the model",
    ),
    breakers_text.Broken(
        name="a template that opens no answer",
        template=TEMPLATE.partition("{% if add_generation_prompt %}")[0],
        fails=frozenset({"template"}),
        says="it writes '<|im_start|>assistant\\n' before an answer and leaves it out where one is asked for",
    ),
    breakers_text.Broken(
        name="a mask of zeros",
        encoder=breakers_text.masked(lambda mask: (False,) * len(mask)),
        fails=frozenset({"mask", "end-of-turn", "gradient-flow"}),
        says="no token is trained",
    ),
    breakers_text.Broken(
        name="a mask that begins a token early",
        encoder=breakers_text.moved(trained=True),
        fails=frozenset({"mask", "prompt-prefix"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    breakers_text.Broken(
        name="a mask that begins a token late",
        encoder=breakers_text.masked(lambda mask: (False, *mask[1:])),
        fails=frozenset({"mask"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    breakers_text.Broken(
        name="the user's turns are trained too",
        encoder=breakers_text.masked(lambda mask: (True,) * len(mask)),
        rows=breakers_text.conversations(),
        fails=frozenset({"mask", "stop-tokens"}),
        says="mask: own.jsonl:1: 1 stretches are trained, and the row has 2 answers to learn",
    ),
    breakers_text.Broken(
        name="an answer that lost a word",
        encoder=breakers_text.answers(lambda one, _: replace(one, ids=one.ids[1:], mask=one.mask[1:])),
        fails=frozenset({"mask", "prompt-prefix"}),
        says="mask: sft.jsonl:1: trained is",
    ),
    breakers_text.Broken(
        name="a prompt that ends a token early",
        encoder=breakers_text.moved(trained=False),
        fails=frozenset({"prompt-prefix"}),
        says="prompt-prefix: sft.jsonl:1: from token 17 on",
    ),
    breakers_text.Broken(
        name="a prompt in other tokens",
        encoder=breakers_text.altered(breakers_text.cut_apart),
        fails=frozenset({"prompt-prefix"}),
        says="is trained, and transformers asks",
    ),
    breakers_text.Broken(
        name="a sampler that asks otherwise",
        method="grpo",
        subject=breakers_text.asks_otherwise,
        fails=frozenset({"prompt-prefix", "rollout-tokens"}),
        says="prompt-prefix: drawing an answer to",
    ),
    breakers_text.Broken(
        name="a template that cuts long turns",
        template=TEMPLATE.replace("m['content']", "m['content'][:60]"),
        fails=frozenset({"template"}),
        says="the template leaves out words of turn 1, the user turn of a conversation of user, assistant",
    ),
    breakers_text.Broken(
        name="a template that changes the order",
        template="{% for m in messages if m['role'] == 'user' %}U {{ m['content'] }}\n{% endfor %}"
        + TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'user' %}"),
        rows=breakers_text.conversations(history=True),
        fails=frozenset({"template"}),
        says="the template changes the order of the turns of a conversation of user, assistant, user, "
        "assistant",
    ),
    breakers_text.Broken(
        name="a template in which an empty system turn takes the next one along",
        template="{% set skip = messages[0]['role'] == 'system' and not messages[0]['content'] %}"
        "{% set messages = messages[2:] if skip else messages %}" + TEMPLATE,
        rows=breakers_text.conversations(system="", history=True),
        fails=frozenset({"template"}),
        says="the template leaves out words of turn 2, the user turn of a conversation of an empty system "
        "turn",
    ),
    breakers_text.Broken(
        name="answers are cut at their ends",
        patches=((encode, "truncate_prompt", breakers_text.from_the_right),),
        settings={"max_length": 25},
        fails=frozenset({"truncation", "end-of-turn"}),
        says="without end",
    ),
    breakers_text.Broken(
        name="nothing is cut",
        patches=((encode, "truncate_prompt", breakers_text.not_at_all),),
        settings={"max_length": 30},
        fails=frozenset({"truncation"}),
        says="tokens, and max_length is 30",
    ),
    breakers_text.Broken(
        name="nearly every prompt is cut",
        rows=breakers_text.long_prompts(),
        settings={"max_length": 40},
        fails=frozenset({"truncation"}),
        says="24 a prompt that is cut",
    ),
    breakers_text.Broken(
        name="a batch that does not train tokens of padding",
        patches=((batch, "batch_of", breakers_text.without_pads),),
        fails=frozenset({"pad-not-trained"}),
        says="an answer that says token 0: ",
    ),
    breakers_text.Broken(
        name="a batch that trains its padding",
        patches=((batch, "batch_of", breakers_text.all_places),),
        fails=frozenset({"pad-not-trained"}),
        says="places of padding are trained",
        method="grpo",
    ),
    breakers_text.Broken(
        name="a batch whose rows end at their first padding",
        patches=((batch, "batch_of", breakers_text.up_to_pad),),
        fails=frozenset({"pad-not-trained"}),
        says="some count as padding",
    ),
    breakers_text.Broken(
        name="a layout that counts padding",
        patches=((microbatch, "layout_batch", breakers_text.padded_positions),),
        fails=frozenset({"pad-not-trained"}),
        says="laid out left, padding is counted as part of the text",
        method="reward",
    ),
)
