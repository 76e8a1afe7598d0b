"""Chat templates that mark a turn by brackets or roles of their own, written here, with what each must give.

The expected texts are written by hand, where all turns look alike by that of one: what is asked and trained.
"""

from tests.tokens.family import Expected, Family, alike

LLAMA2 = Family(
    name="llama-2",
    kind="llama",
    template="""\
{%- set system = '' -%}
{%- set rest = messages -%}
{%- if messages[0].role == 'system' -%}
{%- set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' -%}
{%- set rest = messages[1:] -%}
{%- endif -%}
{%- for turn in rest -%}
{%- if turn.role == 'user' -%}
{{- bos_token + '[INST] ' + (system if loop.first else '') + turn.content.strip() + ' [/INST]' -}}
{%- else -%}
{{- ' ' + turn.content.strip() + ' ' + eos_token -}}
{%- endif -%}
{%- endfor -%}
""",
    specials=("<s>", "</s>"),
    bos="<s>",
    eos="</s>",
    adds_bos=True,
    single=Expected(prompt="<s> [INST] How are you? [/INST]", trained="Fine, thanks. </s>"),
    all=Expected(prompt="<s> [INST] Hi. [/INST]", trained="Hello. </s> Well. </s>"),
    last=Expected(
        prompt="<s> [INST] Hi. [/INST] Hello. </s><s> [INST] And you? [/INST]", trained="Well. </s>"
    ),
    system=Expected(prompt="<s> [INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi. [/INST]", trained="Hello. </s>"),
)

GEMMA = Family(
    name="gemma",
    template="""\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{- raise_exception('There is no system role') -}}{%- endif -%}
{%- for turn in messages -%}
{%- set who = 'model' if turn.role == 'assistant' else turn.role -%}
{{- '<start_of_turn>' + who + '\\n' + turn.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
""",
    kind="metaspace",
    specials=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    bos="<bos>",
    eos="<eos>",
    pad="<pad>",
    adds_bos=True,
    stops=("<eos>", "<end_of_turn>"),
    **alike(
        "<start_of_turn>{}\n{}<end_of_turn>\n",
        "<start_of_turn>model\n",
        "<end_of_turn>",
        start="<bos>",
        assistant="model",
    )
    | {"system": Expected(error="roles: system, user")},
)

MISTRAL = Family(
    name="mistral v3, the system words move to the last question",
    template="""\
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- set rest = messages[1:] if system else messages -%}
{{- bos_token -}}
{%- for turn in rest -%}
{%- if turn.role == 'user' -%}
{{- '[INST] ' + (system + '\\n\\n' if system and loop.last or system and loop.index == rest | length - 1 and
   rest[-1].role == 'assistant' else '') + turn.content + '[/INST]' -}}
{%- else -%}
{{- ' ' + turn.content + eos_token -}}
{%- endif -%}
{%- endfor -%}
""",
    specials=("<s>", "</s>", "[INST]", "[/INST]"),
    bos="<s>",
    eos="</s>",
    adds_bos=True,
    single=Expected(prompt="<s>[INST] How are you?[/INST]", trained=" Fine, thanks.</s>"),
    all=Expected(prompt="<s>[INST] Hi.[/INST]", trained=" Hello.</s> Well.</s>"),
    last=Expected(prompt="<s>[INST] Hi.[/INST] Hello.</s>[INST] And you?[/INST]", trained=" Well.</s>"),
    system=Expected(prompt="<s>[INST] Be brief.\n\nHi.[/INST]", trained=" Hello.</s>"),
)

DEEPSEEK = Family(
    name="deepseek, a BOS in the template and in the tokenizer",
    template="""\
{{- bos_token -}}
{%- for turn in messages -%}
{%- if turn.role == 'system' -%}{{- turn.content -}}
{%- elif turn.role == 'user' -%}{{- '<｜User｜>' + turn.content -}}
{%- else -%}{{- '<｜Assistant｜>' + turn.content + eos_token -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%}
""",
    specials=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
    adds_bos=True,
    single=Expected(
        prompt="<｜begin▁of▁sentence｜><｜User｜>How are you?<｜Assistant｜>",
        trained="Fine, thanks.<｜end▁of▁sentence｜>",
    ),
    all=Expected(
        prompt="<｜begin▁of▁sentence｜><｜User｜>Hi.<｜Assistant｜>",
        trained="Hello.<｜end▁of▁sentence｜>Well.<｜end▁of▁sentence｜>",
    ),
    last=Expected(
        prompt="<｜begin▁of▁sentence｜><｜User｜>Hi.<｜Assistant｜>Hello.<｜end▁of▁sentence｜>"
        "<｜User｜>And you?<｜Assistant｜>",
        trained="Well.<｜end▁of▁sentence｜>",
    ),
    system=Expected(
        prompt="<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi.<｜Assistant｜>",
        trained="Hello.<｜end▁of▁sentence｜>",
    ),
)
