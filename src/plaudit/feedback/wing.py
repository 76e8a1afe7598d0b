"""What the wing of models that judge, revise and attack brings."""

from plaudit.wings import Wing, verbs_in

WING = Wing(
    verbs=verbs_in(
        "plaudit.feedback.verbs",
        attack="lead models astray, and say how often that works, beside what they over-refuse",
        instruct="prompts with instructions that a program can check, drawn by rule",
        judge="labels by models: pairs judged, with soft labels; what a judge is worth",
        revise="answers criticised and written anew by a model: demonstrations, and pairs",
    ),
    stages={
        "judge": "plaudit.feedback.stages:JUDGE",
        "revise": "plaudit.feedback.stages:REVISE",
        "attack": "plaudit.feedback.stages:ATTACK",
        "instruct": "plaudit.feedback.stages:INSTRUCT",
    },
    page_sections={"attacks": "plaudit.feedback.attack_page:ATTACKS"},
    offers={
        "question_text": "plaudit.feedback.judges.modes:question_text",
        "points_question": "plaudit.feedback.judges.modes:points_question",
        "read_constitution": "plaudit.feedback.judges.constitution:read_constitution",
        "queried_judges": "plaudit.feedback.row_judging:queried_judges",
        "self_judge": "plaudit.feedback.judge_kinds:self_judge",
        "refuse_mute_judge": "plaudit.feedback.judge_kinds:refuse_mute_judge",
    },
    rewards={"judge": "plaudit.feedback.judge_kinds:judge_reward"},
    judges={
        "openai": "plaudit.feedback.judge_kinds:SERVER_KIND",
        "model": "plaudit.feedback.judge_kinds:LOCAL_KIND",
        "call": "plaudit.feedback.judge_kinds:CALL_KIND",
        "jury": "plaudit.feedback.judge_kinds:SEVERAL_KIND",
        "spread": "plaudit.feedback.judge_kinds:SEVERAL_KIND",
    },
)
