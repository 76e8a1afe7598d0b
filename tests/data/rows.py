"""Rows in the shape of the real thing, written for the tests."""

from __future__ import annotations

import json
from pathlib import Path

USER = {"role": "user", "content": "What sinks?"}
STONE = [{"role": "assistant", "content": "A stone."}]
CORK = [{"role": "assistant", "content": "A cork."}]

HH = {
    "chosen": "\n\nHuman: What sinks?\n\nAssistant: Many things.\n\nHuman: One?\n\nAssistant: A stone.",
    "rejected": "\n\nHuman: What sinks?\n\nAssistant: Many things.\n\nHuman: One?\n\nAssistant: A cork.",
}


def _annotated(response: str, ratings: list[str], overall: float) -> dict:
    aspects = ("instruction_following", "honesty", "truthfulness", "helpfulness")
    return {
        "model": "m",
        "response": response,
        "annotations": {
            a: {"Rating": r, "Rationale": "because"} for a, r in zip(aspects, ratings, strict=True)
        },
        "overall_score": overall,
    }


ULTRAFEEDBACK = {
    "source": "made",
    "instruction": "What sinks?",
    "models": ["a", "b", "c"],
    "completions": [
        _annotated("A cork.", ["1", "2", "1", "1"], 10),
        _annotated("A stone.", ["5", "5", "N/A", "4"], 8.5),
        _annotated("No answer.", ["N/A", "N/A", "N/A", "N/A"], 5),
    ],
    "correct_answers": ["None"],
    "incorrect_answers": ["None"],
}

SHP = {
    "post_id": "x1",
    "domain": "askphysics_train",
    "upvote_ratio": 0.98,
    "history": "What sinks?",
    "c_root_id_A": "c1",
    "c_root_id_B": "c2",
    "created_at_utc_A": 1,
    "created_at_utc_B": 2,
    "score_A": 4,
    "score_B": 9,
    "human_ref_A": "A cork.",
    "human_ref_B": "A stone.",
    "labels": 0,
    "seconds_difference": 1.0,
    "score_ratio": 2.25,
}

NECTAR = {
    "prompt": "\n\nHuman: What sinks?\n\nAssistant: ",
    "answers": [
        {"answer": "A cork.", "model": "a", "rank": 3.0},
        {"answer": "A stone.", "model": "b", "rank": 1.0},
        {"answer": "An anchor.", "model": "c", "rank": 2.0},
    ],
    "turns": 1,
    "num_responses": 3,
    "source": ["made"],
    "good_natured": True,
}

AXES = {
    "info": {"id": "a1", "title": None, "article": "A stone sank.", "site": "news"},
    "split": "test",
    "summary": {
        "text": " It sank.",
        "policy": "p",
        "note": "",
        "axes": {"overall": 6, "accuracy": 7, "coverage": 5, "coherence": None},
    },
    "worker": "w7",
    "batch": "b1",
}

PRM800K = {
    "labeler": "l1",
    "timestamp": "2023-01-01",
    "generation": 9,
    "is_quality_control_question": False,
    "is_initial_screening_question": False,
    "question": {
        "problem": "Solve 2x = 6.",
        "ground_truth_solution": "x = 3",
        "ground_truth_answer": "3",
        "pre_generated_steps": [],
        "pre_generated_answer": "4",
        "pre_generated_verifier_score": 0.1,
    },
    "label": {
        "steps": [
            {
                "completions": [
                    {"text": "Look at 2x = 6.", "rating": 0, "flagged": False},
                    {"text": "Double it.", "rating": -1, "flagged": False},
                ],
                "human_completion": None,
                "chosen_completion": 0,
            },
            {
                "completions": None,
                "human_completion": {"text": "Divide by 2.", "rating": None},
                "chosen_completion": None,
            },
            {
                "completions": [{"text": "x = 4.", "rating": -1, "flagged": False}],
                "human_completion": None,
                "chosen_completion": None,
            },
        ],
        "total_time": 1000,
        "finish_reason": "found_error",
    },
}

HELPSTEER2 = {
    "prompt": "What sinks?",
    "response": "A stone.",
    "helpfulness": 4,
    "correctness": 4,
    "coherence": 3,
    "complexity": 1,
    "verbosity": 0,
}

HELPSTEER3 = {
    "domain": "general",
    "language": "english",
    "context": [USER],
    "response1": "A stone.",
    "response2": "A cork.",
    "overall_preference": -2,
    "individual_preference": [{"score": -2, "reasoning": "true", "feedback1": "", "feedback2": ""}],
}


def _node(text: str, role: str, rank: int | None, replies: list[dict], deleted: bool = False) -> dict:
    return {
        "message_id": text,
        "text": text,
        "role": role,
        "lang": "en",
        "rank": rank,
        "deleted": deleted,
        "replies": replies,
    }


OASST = {
    "message_tree_id": "t1",
    "tree_state": "ready_for_export",
    "prompt": _node(
        "What sinks?",
        "prompter",
        None,
        [
            _node("A cork.", "assistant", 1, []),
            _node(
                "A stone.",
                "assistant",
                0,
                [
                    _node(
                        "Why?",
                        "prompter",
                        0,
                        [
                            _node("It is dense.", "assistant", 0, []),
                            _node("It is sad.", "assistant", 1, []),
                            _node("spam", "assistant", 2, [], deleted=True),
                        ],
                    )
                ],
            ),
            _node("An anchor.", "assistant", None, []),
        ],
    ),
    "origin": "web",
}

REWARDBENCH = {
    "prompt": "What sinks?",
    "chosen": "A stone.",
    "rejected": "A cork.",
    "chosen_model": "a",
    "rejected_model": "b",
    "subset": "alpacaeval-easy",
    "id": 12,
}

REWARDBENCH2 = {
    "id": "ref:4",
    "prompt": "Name a thing that sinks.",
    "chosen": ["A stone.", "An anchor."],
    "rejected": ["A cork.", "A boat.", "Foam."],
    "num_correct": 2,
    "total_completions": 5,
    "subset": "Ties",
    "models": ["a"],
}


def write(path: Path, *rows: object) -> Path:
    """Rows as JSON lines; bytes and texts are written as they are."""
    lines = [
        row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode()
        for row in rows
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path
