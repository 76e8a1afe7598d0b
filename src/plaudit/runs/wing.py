"""What the wing of pipelines, plans and reports brings."""

from plaudit.wings import Wing, verbs_in

WING = Wing(
    verbs=verbs_in(
        "plaudit.runs.verbs",
        combine="make one reward of several models",
        plan="say what a run will cost before it begins: steps, memory, time and disk",
        push="bring the model of a run to the Hugging Face hub, with a card",
        report="write the page of a run again, or one that compares several",
        run="the whole of RLHF in one command: stages from rows to a report",
    ),
    stages={
        "rows": "plaudit.runs.pipeline.stages:IMPORT_ROWS",
        "combine": "plaudit.runs.pipeline.stages:COMBINE",
        "evaluate": "plaudit.runs.pipeline.stages:EVALUATE",
        "judge-reward": "plaudit.runs.pipeline.stages:JUDGE_REWARDS",
    },
    offers={
        "DeepSpeed": "plaudit.runs.deepspeed:import_deepspeed",
        "ZeroAdamW": "plaudit.runs.deepspeed:ZeroAdamW",
        "curves_page": "plaudit.runs.report.run.page:curves_page",
        "memory_fit": "plaudit.runs.planner.fit:estimate_fit",
        "model_card": "plaudit.runs.report.run.card:model_card",
        "pipeline_page": "plaudit.runs.report.pipeline.page:write_report",
        "reward_pages": "plaudit.runs.report.reward_models.page:write_reward_evaluations",
        "rows_page": "plaudit.runs.report.rows:write_rows_page",
        "run_page": "plaudit.runs.report.run.page:write_report",
    },
)
