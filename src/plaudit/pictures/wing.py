"""What the wing of pictures brings."""

from plaudit.wings import Wing

WING = Wing(offers={"picture_reader": "plaudit.pictures.reading:PictureReader"})
