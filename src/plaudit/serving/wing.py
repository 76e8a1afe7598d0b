"""What the wing of sampling servers brings."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={
        "serve": Verb(module="plaudit.serving.serve", purpose="draw answers for a run in another process")
    },
    offers={"remote_sampler": "plaudit.serving.sampler:remote_sampler"},
)
