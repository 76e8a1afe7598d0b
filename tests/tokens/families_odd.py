"""Chat templates with several, other or no end tokens, written here, with what each must give.

The expected texts are written by hand, where all turns look alike by that of one: what is asked and trained.
"""

from tests.tokens.family import Expected, Family, alike

PHI = Family(
    name="phi-3.5, an EOS behind the end of turn, several stop tokens, pad = eos",
    template="""\
{%- for turn in messages -%}
{{- '<|' + turn.role + '|>\\n' + turn.content + '<|end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- else -%}{{- eos_token -}}{%- endif -%}
""",
    specials=("<|endoftext|>", "<|assistant|>", "<|user|>", "<|system|>", "<|end|>"),
    eos="<|endoftext|>",
    pad="<|endoftext|>",
    stops=("<|end|>", "<|assistant|>", "<|endoftext|>"),
    **alike("<|{}|>\n{}<|end|>\n", "<|assistant|>\n", "<|end|>"),
)

CHANNELS = Family(
    name="gpt-oss, one end token in history and another at the end",
    template="""\
{%- for turn in messages -%}
{%- if turn.role == 'assistant' -%}
{{- '<|start|>assistant<|channel|>final<|message|>' + turn.content -}}
{{- ('<|return|>' if loop.last else '<|end|>') -}}
{%- else -%}
{{- '<|start|>' + turn.role + '<|message|>' + turn.content + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}
""",
    specials=("<|start|>", "<|end|>", "<|return|>", "<|message|>", "<|channel|>", "<|endoftext|>"),
    eos="<|return|>",
    pad="<|endoftext|>",
    stops=("<|return|>", "<|endoftext|>"),
    single=Expected(
        prompt="<|start|>user<|message|>How are you?<|end|><|start|>assistant",
        trained="<|channel|>final<|message|>Fine, thanks.<|return|>",
    ),
    all=Expected(
        prompt="<|start|>user<|message|>Hi.<|end|><|start|>assistant",
        trained="<|channel|>final<|message|>Hello.<|channel|>final<|message|>Well.<|return|>",
    ),
    last=Expected(
        prompt="<|start|>user<|message|>Hi.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|end|>"
        "<|start|>user<|message|>And you?<|end|><|start|>assistant",
        trained="<|channel|>final<|message|>Well.<|return|>",
    ),
    system=Expected(
        prompt="<|start|>system<|message|>Be brief.<|end|>"
        "<|start|>user<|message|>Hi.<|end|><|start|>assistant",
        trained="<|channel|>final<|message|>Hello.<|return|>",
    ),
)

ZEPHYR = Family(
    name="zephyr, headers that are no tokens, the tokenizer adds a BOS and the template none",
    template="""\
{%- for turn in messages -%}
{{- '<|' + turn.role + '|>\\n' + turn.content + eos_token + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
""",
    specials=("<s>", "</s>"),
    bos="<s>",
    eos="</s>",
    adds_bos=True,
    **alike("<|{}|>\n{}</s>\n", "<|assistant|>\n", "</s>", start="<s>"),
)

ENDLESS = Family(
    name="no end token at all",
    template="""\
{%- for turn in messages -%}
{{- turn.role + ': ' + turn.content + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'assistant: ' -}}{%- endif -%}
""",
    specials=("<|endoftext|>",),
    bos="<|endoftext|>",
    eos="<|endoftext|>",
    pad="<|endoftext|>",
    single=Expected(prompt="user: How are you?\nassistant: ", trained="Fine, thanks.<|endoftext|>"),
    all=Expected(prompt="user: Hi.\nassistant: ", trained="Hello.Well.<|endoftext|>"),
    last=Expected(
        prompt="user: Hi.\nassistant: Hello.\nuser: And you?\nassistant: ", trained="Well.<|endoftext|>"
    ),
    system=Expected(prompt="system: Be brief.\nuser: Hi.\nassistant: ", trained="Hello.<|endoftext|>"),
)

DROPS = Family(
    name="drops the system turn in silence",
    template="""\
{%- for turn in messages -%}
{%- if turn.role in ('user', 'assistant') -%}
{{- '<|' + turn.role + '|>' + turn.content + eos_token -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
""",
    kind="metaspace",
    specials=("</s>", "<|user|>", "<|assistant|>"),
    eos="</s>",
    **alike("<|{}|>{}</s>", "<|assistant|>", "</s>")
    | {"system": Expected(error="leaves out turn 1, the system turn")},
)

WORDS = Family(
    name="whole words",
    kind="words",
    template="""\
{%- for turn in messages -%}
{{- '<' + turn.role + '> ' + turn.content + ' </s> ' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<assistant>' -}}{%- endif -%}
""",
    specials=("</s>", "<user>", "<assistant>", "<system>"),
    eos="</s>",
    single=Expected(prompt="<user> How are you ? </s> <assistant>", trained="Fine , thanks . </s>"),
    all=Expected(prompt="<user> Hi . </s> <assistant>", trained="Hello . </s> Well . </s>"),
    last=Expected(
        prompt="<user> Hi . </s> <assistant> Hello . </s> <user> And you ? </s> <assistant>",
        trained="Well . </s>",
    ),
    system=Expected(prompt="<system> Be brief . </s> <user> Hi . </s> <assistant>", trained="Hello . </s>"),
)
