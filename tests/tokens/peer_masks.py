"""Run by the peer's own Python: the tokens and the mask that its packaged training templates give.

Reads ``[[template name, tokenizer folder, messages], …]`` and prints ``[[template, ids, mask], …]``.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    import trl
    from transformers import AutoTokenizer

    templates = Path(trl.__file__).parent / "chat_templates"
    answers = []
    for name, where, messages in json.load(sys.stdin):
        template = (templates / f"{name}_training.jinja").read_text(encoding="utf-8")
        told = AutoTokenizer.from_pretrained(where).apply_chat_template(
            messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True
        )
        answers.append([template, list(told["input_ids"]), list(told["assistant_masks"])])
    print("ANSWERS" + json.dumps(answers))


if __name__ == "__main__":
    main()
