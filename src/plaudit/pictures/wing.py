"""What the wing of pictures brings."""

from plaudit.wings import Wing

WING = Wing()
