"""What the wing of pictures brings."""

from plaudit.wings import Wing

WING = Wing(
    stages={
        "picture-rows": "plaudit.pictures.world.making:PICTURE_ROWS",
        "picture-exam": "plaudit.pictures.world.exam:PICTURE_EXAM",
    },
    page_sections={"pictures": "plaudit.pictures.world.exam:PICTURE_SECTION"},
    offers={
        "picture_reader": "plaudit.pictures.reading:PictureReader",
        "picture_places": "plaudit.pictures.checks:check_places",
        "picture_seen": "plaudit.pictures.checks:check_matters",
        "placed_pictures": "plaudit.pictures.rows:placed",
        "with_part_of_pictures": "plaudit.pictures.rows:with_part_of_pictures",
    },
    rewards={"picture-gold": "plaudit.pictures.world.measure:picture_gold"},
    models={"pictures": "plaudit.pictures.world:SHIPPED_MODEL_FOLDER"},
)
