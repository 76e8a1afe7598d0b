"""Run by the Python of the official client's environment: what it makes of a server's replies.

It is given the server's address and questions as JSON, and prints what it found behind ``ANSWERS``.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Read the question from standard input, ask the server, print the answers."""
    # Here, since tests are collected where the client is not installed.
    import openai

    asked = json.load(sys.stdin)
    with openai.OpenAI(base_url=asked["url"], api_key="none", max_retries=0) as client:
        answers = {
            "models": [model.id for model in client.models.list()],
            "letter": _completed(client, "world", asked["question"], logprobs=True, top_logprobs=5),
            "refusal": _completed(client, "shy", asked["question"]),
            "cut": _completed(client, "world", asked["verdict"], max_tokens=3),
            "unknown": _failed(client, "nobody", asked["question"]),
            "stream": _failed(client, "world", asked["question"], stream=True),
            "limited": sorted({_failed(client, "faulty", f"{n} {asked['question']}")[0] for n in range(40)}),
        }
    with openai.OpenAI(base_url=asked["url"], api_key="none", max_retries=8) as patient:
        answers["patient"] = _completed(patient, "faulty", asked["question"])
    print("ANSWERS", json.dumps(answers))


def _completed(client: Any, model: str, text: str, **more: Any) -> dict[str, Any]:
    messages: Any = [{"role": "user", "content": text}]
    found = client.chat.completions.create(model=model, messages=messages, temperature=0, **more)
    [choice] = found.choices
    content = choice.logprobs.content if choice.logprobs and choice.logprobs.content else []
    return {
        "text": choice.message.content,
        "refusal": choice.message.refusal,
        "finish": choice.finish_reason,
        "top": {top.token: top.logprob for token in content for top in token.top_logprobs},
        "usage": [found.usage.prompt_tokens, found.usage.completion_tokens] if found.usage else None,
    }


def _failed(client: Any, model: str, text: str, **more: Any) -> list[str]:
    """The client's own name for what goes wrong, and the server's words; ``none`` where nothing does."""
    import openai

    messages: Any = [{"role": "user", "content": text}]
    try:
        found = client.chat.completions.create(model=model, messages=messages, **more)
        # An error under status 200 is for the client a completion without choices.
        return ["none" if getattr(found, "choices", None) else "no choices", ""]
    except openai.APIError as error:
        return [type(error).__name__, error.message]


if __name__ == "__main__":
    main()
