"""What the wing of labels by people brings."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={
        "collect": Verb(
            module="plaudit.collect.verbs",
            purpose="labels by people: a store, its tasks, the people who answer, rows out of it",
        )
    },
    plans={"labels": Verb(module="plaudit.collect.verbs.plan", purpose="labels by people: hours and money")},
    stages={"collect": "plaudit.collect.stage:COLLECT"},
    judges={"people": "plaudit.collect.rounds:PEOPLE_KIND"},
    offers={
        "attending": "plaudit.collect.stage:attending",
        "refuse_without_database": "plaudit.collect.waiting:refuse_without_database",
        "LabelClient": "plaudit.collect.client:LabelClient",
        "RefusedError": "plaudit.collect.client:RefusedError",
        "store_judgements": "plaudit.collect.judging:store_judgements",
        "ask_people": "plaudit.collect.rounds:ask_people",
        "check_people": "plaudit.collect.rounds:check_people",
    },
)
