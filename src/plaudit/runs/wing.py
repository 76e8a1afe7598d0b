"""What the wing of pipelines, plans and reports brings."""

from plaudit.wings import Verb, Wing

WING = Wing(
    verbs={
        "plan": Verb(
            module="plaudit.runs.verbs.plan",
            purpose="say what a run will cost before it begins: steps, memory, time and disk",
        ),
        "report": Verb(
            module="plaudit.runs.verbs.report",
            purpose="write the page of a run again, or one that compares several",
        ),
        "run": Verb(
            module="plaudit.runs.verbs.run",
            purpose="the whole of RLHF in one command: stages from rows to a report",
        ),
    },
    stages={
        "rows": "plaudit.runs.pipeline.stages:IMPORT_ROWS",
        "combine": "plaudit.runs.pipeline.stages:COMBINE",
    },
    before_training={"memory": "plaudit.runs.planner.fit:estimate_fit"},
    run_pages={"report.html": "plaudit.runs.report.run.page:write_report"},
    offers={
        "curves_page": "plaudit.runs.report.run.page:curves_page",
        "model_card": "plaudit.runs.report.run.card:model_card",
        "write_reward_evaluations": "plaudit.runs.report.reward_models.page:write_reward_evaluations",
    },
)
"""Named among the entry points of pyproject.toml."""
