"""What the wing of pictures brings."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={
        "diffusion": Verb(
            module="plaudit.pictures.diffusion.command",
            purpose="models that draw: taught by pictures, by preferences among them and by rewards",
        )
    }
)
