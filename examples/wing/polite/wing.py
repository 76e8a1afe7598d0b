"""What the wing brings, by name; the modules are imported when somebody calls for them."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={"thanks": Verb(module="polite.verb", purpose="keep the demonstrations that thank")},
    stages={"thanks": "polite.stage:THANKS"},
    page_sections={"thanks": "polite.page:THANKS"},
)
