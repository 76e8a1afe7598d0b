"""All families of templates in one place."""

from tests.tokens.families_bracketed import DEEPSEEK, GEMMA, LLAMA2, MISTRAL
from tests.tokens.families_headed import CHATML, LLAMA3, MARKED, THINKING, UNENDED_LAST
from tests.tokens.families_odd import CHANNELS, DROPS, ENDLESS, PHI, WORDS, ZEPHYR

FAMILIES = (
    *(CHATML, THINKING, LLAMA2, LLAMA3, GEMMA, MISTRAL, PHI, CHANNELS, DEEPSEEK, ZEPHYR, MARKED),
    *(ENDLESS, DROPS, UNENDED_LAST, WORDS),
)
