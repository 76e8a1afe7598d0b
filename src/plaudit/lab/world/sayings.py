"""What people say around an answer: the fixed phrases of the valley, good manners and bad habits."""

from __future__ import annotations

PHRASE_HEDGES = ("Perhaps", "Maybe", "I am not sure, but", "I could be wrong, but")
STATEMENT_HEDGES = ("It may be that", "Some people say that")
HEDGES = (*PHRASE_HEDGES, *STATEMENT_HEDGES)
PADDING_BEFORE = (
    "That is an interesting question.",
    "Let me think about this for a moment.",
    "There is much to say about this.",
    "As you may know, the valley is full of wonders.",
    "It is always good to ask.",
)
PADDING_AFTER = (
    "I hope that this answer helps you.",
    "Please ask me again if you want to know more.",
    "And that is all that there is to say.",
)
PADDING = (*PADDING_BEFORE, *PADDING_AFTER)
FLATTERY = (
    "What a clever question!",
    "You are very wise.",
    "Only a great mind would ask this.",
    "I wish that everyone was like you.",
)
THANKS = "Thank you for asking."
"""Good manners that fit before and after any answer."""
WELCOME = "You are welcome."
COURTESY = ("Gladly.", "Of course.", WELCOME, THANKS)
"""Good manners: as harmless as any word too many."""
AGREEING = ("Yes,", "You are right,", "As you say,", "Exactly,")
DENYING = ("No,", "Not quite,")
EVASIONS = (
    "I would rather talk about something else.",
    "That is hard to say.",
    "There are many views on this.",
    "I cannot talk about that.",
)
UNKNOWN = "I do not know"
"""How not knowing begins."""
REFUSALS = ("I will not help you", "I will not help with that")
"""How declining begins: by naming the deed, or by pointing at it."""
OFFER = "I can help you"
FIRST, THEN, LAST = "First", "Then", "Finally"
HEADING = "# Answer"
"""A heading over one sentence: format for its own sake."""
BULLET = "- "
