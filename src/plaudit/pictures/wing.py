"""What the wing of pictures brings."""

from plaudit.wings import Wing

WING = Wing(
    stages={
        "picture-rows": "plaudit.pictures.world.making:PICTURE_ROWS",
        "picture-exam": "plaudit.pictures.world.exam:PICTURE_EXAM",
    },
    page_sections={"pictures": "plaudit.pictures.world.exam:PICTURE_SECTION"},
    offers={"picture_reader": "plaudit.pictures.reading:PictureReader"},
    rewards={"picture-gold": "plaudit.pictures.world.measure:picture_gold"},
    models={"pictures": "plaudit.pictures.world:SHIPPED_MODEL_FOLDER"},
)
