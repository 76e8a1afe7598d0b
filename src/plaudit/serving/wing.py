"""What the wing of sampling servers brings."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={
        "chat": Verb(
            module="plaudit.serving.chat",
            purpose="hold a conversation with one model, or the same one with several",
        ),
        "serve": Verb(module="plaudit.serving.serve", purpose="draw answers for a run in another process"),
    },
    offers={"remote_sampler": "plaudit.serving.sampler:remote_sampler"},
)
