"""What the wing of the embedded world brings."""

from plaudit.wings import Wing, verbs_in

WING = Wing(
    verbs=verbs_in("plaudit.lab.verbs", world="the embedded world: rows, annotators, gold, base model"),
    stages={"world-rows": "plaudit.lab.world.wanted:WORLD_ROWS"},
    offers={
        "annotate": "plaudit.lab.world.online:annotate",
        "annotator_pools": "plaudit.lab.world.annotators:POOLS",
        "base_model_folder": "plaudit.lab.world:base_model_folder",
        "world_attacks": "plaudit.lab.world.attacks:WORLD",
    },
    prompts={"world": "plaudit.lab.world.exam:WORLD"},
    models={"base": "plaudit.lab.world:SHIPPED_MODEL_FOLDER"},
)
