"""Chat templates with a header before every turn, written here, with what each must give.

The expected texts are written by hand, where all turns look alike by that of one: what is asked and trained.
"""

from dataclasses import replace

from tests.tokens.family import Family, alike

_TURN, _ASK = "<|im_start|>{}\n{}<|im_end|>\n", "<|im_start|>assistant\n"
_PLAIN = alike(_TURN, _ASK, "<|im_end|>")
_UNTHOUGHT = "<think>\n\n</think>\n\n"
_CHATML_BODY = """\
{%- for turn in messages -%}
{{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

CHATML = Family(
    name="chatml",
    template="""\
{%- if not messages or messages[0].role != 'system' -%}
{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' -}}
{%- endif -%}
"""
    + _CHATML_BODY,
    specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    eos="<|im_end|>",
    pad="<|endoftext|>",
    stops=("<|im_end|>", "<|endoftext|>"),
    **alike(_TURN, _ASK, "<|im_end|>", start=_TURN.format("system", "You help."))
    | {"system": _PLAIN["system"]},
)

THINKING = Family(
    name="thinking, an empty block before a last answer, none in history (Qwen3)",
    template="""\
{%- set found = namespace(question=-1) -%}
{%- for turn in messages -%}
{%- if turn.role == 'user' -%}{%- set found.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for turn in messages -%}
{%- if turn.role == 'assistant' -%}
{%- set words = turn.content.split('</think>')[-1].lstrip('\\n') -%}
{%- set thought = '' -%}
{%- if '</think>' in turn.content -%}
{%- set thought = turn.content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
{%- endif -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if loop.index0 > found.question and (loop.last or thought) -%}
{{- '<think>\\n' + thought + '\\n</think>\\n\\n' -}}
{%- endif -%}
{{- words + '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- endif -%}
{%- endif -%}
""",
    specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    eos="<|im_end|>",
    pad="<|endoftext|>",
    stops=("<|im_end|>", "<|endoftext|>"),
    single=replace(_PLAIN["single"], trained=_UNTHOUGHT + "Fine, thanks.<|im_end|>"),
    all=replace(_PLAIN["all"], trained=f"Hello.<|im_end|>{_UNTHOUGHT}Well.<|im_end|>"),
    last=replace(_PLAIN["last"], trained=_UNTHOUGHT + "Well.<|im_end|>"),
    system=replace(_PLAIN["system"], trained=_UNTHOUGHT + "Hello.<|im_end|>"),
)

LLAMA3 = Family(
    name="llama-3",
    template="""\
{{- bos_token -}}
{%- for turn in messages -%}
{{- '<|start_header_id|>' + turn.role + '<|end_header_id|>\\n\\n' + turn.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}
""",
    specials=(
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ),
    bos="<|begin_of_text|>",
    eos="<|end_of_text|>",
    adds_bos=True,
    stops=("<|end_of_text|>", "<|eot_id|>"),
    **alike(
        "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        start="<|begin_of_text|>",
    ),
)

MARKED = Family(
    name="generation markers that miss the end of turn",
    template="""\
{%- for turn in messages -%}
{{- '<|im_start|>' + turn.role + '\\n' -}}
{%- if turn.role == 'assistant' -%}
{%- generation -%}{{- turn.content -}}{%- endgeneration -%}
{%- else -%}{{- turn.content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""",
    specials=("<|im_start|>", "<|im_end|>"),
    eos="<|im_end|>",
    **_PLAIN,
)

UNENDED_LAST = Family(
    name="ends every answer but the last (an early ChatML)",
    template="""\
{%- for turn in messages -%}
{{- '<|im_start|>' + turn.role + '\\n' + turn.content -}}
{%- if not loop.last or add_generation_prompt -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""",
    specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    eos="<|endoftext|>",
    stops=("<|im_end|>", "<|endoftext|>"),
    **_PLAIN,
)
