"""Layouts of votes on answers: Chatbot Arena's, picks of one of two, answers with ranks or scores.

(Zheng et al. 2023, https://arxiv.org/abs/2306.05685; PKU-SafeRLHF: Ji et al. 2024, https://arxiv.org/abs/2406.15513;
AlpacaFarm: Dubois et al. 2023, https://arxiv.org/abs/2305.14387; WebGPT: Nakano et al. 2021,
https://arxiv.org/abs/2112.09332; PRISM: Kirk et al. 2024, https://arxiv.org/abs/2404.16019; RewardBench 2:
https://arxiv.org/abs/2506.01937.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from plaudit.data.fields import BadRowError, LeftOutError, Node, optional_name
from plaudit.data.formats.layout import (
    BOOLEAN,
    MESSAGES,
    NUMBER,
    NUMBERS,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_MESSAGES,
    TEXTS,
    TEXTS_OR_CONVERSATIONS,
    AnnotationInfo,
    FieldType,
    ReadOptions,
    RowFormat,
    ranks_of,
    read_response,
    require_different,
    split_shared_turns,
)
from plaudit.data.formats.problems import question_turns
from plaudit.data.formats.trl import read_numbered_answers
from plaudit.data.records import UNSAFE, Comparison, Ranking, Record, Text, assistant_turn, user_turn
from plaudit.data.turns import Turns, read_completion, read_messages, read_prompt, require_not_empty

Winner = Literal["a", "b", "tie"]

_WINNERS: dict[str, Winner] = {
    "model_a": "a",
    "model_b": "b",
    "tie": "tie",
    "tie (bothbad)": "tie",
    "both_bad": "tie",
}
"""What a released vote says; two bad answers are equal ones, as in the arena's own ratings."""
_WINNER_COLUMNS: Mapping[Winner, str] = {"a": "winner_model_a", "b": "winner_model_b", "tie": "winner_tie"}
_LOGGED: dict[str, Winner] = {"leftvote": "a", "rightvote": "b", "tievote": "tie", "bothbad_vote": "tie"}
"""What a line of the arena's own log says, where it is a vote."""


def _arena(row: Node, options: ReadOptions) -> Iterable[Record]:
    node = row.get("winner")
    if node.text() not in _WINNERS:
        raise node.error("wrong value", f"one of {', '.join(_WINNERS)}")
    winner = _WINNERS[node.text()]
    side_a, side_b = (read_messages(row.get(f"conversation_{side}")) for side in "ab")
    vote = _vote(side_a, side_b, winner, options)
    who, language = optional_name(row, "judge"), optional_name(row, "language")
    return (replace(vote, annotator=who, category=language),)


def _arena_columns(row: Node, options: ReadOptions) -> Iterable[Record]:
    questions = [user_turn(node.text()) for node in _texts(row.get("prompt"))]
    sides: list[Turns] = []
    for name in ("response_a", "response_b"):
        answers = [assistant_turn(node.text()) for node in _texts(row.get(name))]
        if len(answers) != len(questions):
            expected = f"{len(questions)} answers, one a prompt"
            raise BadRowError("wrong value", name, expected=expected, found=str(len(answers)))
        pairs = zip(questions, answers, strict=True)
        sides.append(tuple(turn for question, answer in pairs for turn in (*question, *answer)))
    return (_vote(sides[0], sides[1], _column_winner(row), options),)


def _column_winner(row: Node) -> Winner:
    """The one verdict whose column is true; without a column for ties, a tie is none."""
    nodes: Mapping[Winner, Node | None] = {
        winner: row.optional(name) for winner, name in _WINNER_COLUMNS.items()
    }
    chosen: list[Winner] = [winner for winner, node in nodes.items() if node is not None and node.boolean()]
    if len(chosen) > 1 or (not chosen and nodes["tie"] is not None):
        found = f"{len(chosen)} of them" if chosen else "none"
        expected = f"one of {', '.join(_WINNER_COLUMNS.values())} to be true"
        field = _WINNER_COLUMNS[chosen[-1] if chosen else "tie"]
        raise BadRowError("wrong value", field, expected=expected, found=found)
    return chosen[0] if chosen else "tie"


def _arena_log(row: Node, options: ReadOptions) -> Iterable[Record]:
    """A line of FastChat's server log. It knows people by their address only, which is not read."""
    kind = row.get("type").text()
    if kind not in _LOGGED:
        raise LeftOutError("lines of the log that are no vote on two answers")
    states = row.get("states").items()
    if len(states) != 2:
        raise BadRowError("wrong value", "states", expected="two conversations", found=str(len(states)))
    side_a, side_b = (_logged_turns(state) for state in states)
    return (_vote(side_a, side_b, _LOGGED[kind], options),)


def _logged_turns(state: Node) -> Turns:
    """The turns behind the model's own examples, which ``offset`` counts."""
    offset = state.optional("offset")
    before = 0 if offset is None else int(offset.number())
    turns = [turn.items() for turn in state.get("messages").items()[before:]]
    for turn, path in ((turn, f"{state.path}.messages[{before + i}]") for i, turn in enumerate(turns)):
        if len(turn) != 2:
            raise BadRowError("wrong value", path, expected="[who, words]", found=f"a list of {len(turn)}")
    makers = (user_turn, assistant_turn)
    return tuple(part for i, (_, words) in enumerate(turns) for part in makers[i % 2](words.text()))


def _texts(node: Node) -> tuple[Node, ...]:
    return Node(value=node.value, path=node.path, cells=True).items()


def _vote(side_a: Turns, side_b: Turns, winner: Winner, options: ReadOptions) -> Comparison:
    if winner == "tie" and options.ties == "drop":
        raise LeftOutError("ties")
    require_different(side_a, side_b, "conversation_a, conversation_b")
    prompt, first, second = split_shared_turns(side_a, side_b)
    for answer, name in ((first, "conversation_a"), (second, "conversation_b")):
        require_not_empty(answer, name)
    chosen, rejected = (second, first) if winner == "b" else (first, second)
    tie = 0.5 if winner == "tie" else None
    return Comparison(prompt=prompt, chosen=chosen, rejected=rejected, probability=tie)


def _safe_rlhf(row: Node, options: ReadOptions) -> Iterable[Record]:
    """The better of two answers, and which of them are safe; the safer one stands in a field of its own."""
    prompt, second_wins = row.get("prompt").text(), row.get("better_response_id").boolean()
    pair = picked(row.get("response_0"), row.get("response_1"), prompt, -1 if second_wins else 1)
    chosen = int(second_wins)
    safe = [row.optional(f"is_response_{number}_safe") for number in (chosen, 1 - chosen)]
    flags = tuple(() if node.boolean() else UNSAFE[1:] for node in safe if node is not None)
    return (replace(pair, flags=flags if len(flags) == 2 else ()),)


def _alpaca_farm(row: Node, options: ReadOptions) -> Iterable[Record]:
    """1 prefers the first output and 2 the second; between them lies how likely the second is preferred."""
    second = row.get("preference").number_between(1, 2) - 1
    prompt = question_turns(row, "instruction", "input")
    pair = picked(row.get("output_1"), row.get("output_2"), prompt, 0.5 - second)
    return (pair if second in (0, 1) else replace(pair, probability=max(second, 1 - second)),)


def _webgpt(row: Node, options: ReadOptions) -> Iterable[Record]:
    prompt = row.get("question").get("full_text").text()
    lead = row.get("score_0").number() - row.get("score_1").number()
    return (replace(picked(row.get("answer_0"), row.get("answer_1"), prompt, lead), strength=abs(lead)),)


def picked(first: Node, second: Node, prompt: Text, lead: float) -> Comparison:
    """One of two answers above the other, or a tie where neither leads."""
    better, worse = (read_response(node, prompt) for node in (first, second))
    require_different(better, worse, f"{first.path}, {second.path}")
    chosen, rejected = (worse, better) if lead < 0 else (better, worse)
    tie = 0.5 if lead == 0 else None
    return Comparison(prompt=prompt, chosen=chosen, rejected=rejected, probability=tie)


def _ranked(row: Node, options: ReadOptions) -> Iterable[Record]:
    ranking = read_numbered_answers(row, "ranks")
    if not _are_ranks(ranking.ranks):
        raise BadRowError(
            "wrong value",
            "ranks",
            expected="1 for the best answer, and then no holes (of ratings say --columns scores=FIELD)",
            found=f"{', '.join(f'{rank:g}' for rank in ranking.ranks)}, which look like ratings",
        )
    return (ranking,)


def _are_ranks(ranks: Sequence[float]) -> bool:
    """Whether numbers count places, ties by the first of theirs, by the middle, or as one place.

    >>> _are_ranks([1, 1, 3]), _are_ranks([1, 2, 2]), _are_ranks([1.5, 1.5, 3]), _are_ranks([4, 9, 9])
    (True, True, True, False)
    """
    first = [1 + sum(other < rank for other in ranks) for rank in ranks]
    middle = [place + (ranks.count(rank) - 1) / 2 for place, rank in zip(first, ranks, strict=True)]
    dense = [1 + len({other for other in ranks if other < rank}) for rank in ranks]
    return [*ranks] in (first, middle, dense)


def _scored(row: Node, options: ReadOptions) -> Iterable[Record]:
    if len(row.get("completions").items()) < 2:
        raise LeftOutError("questions with one answer")
    scored = read_numbered_answers(row, "scores")
    return (replace(scored, ranks=ranks_of(scored.ranks)),)


def _prism(row: Node, options: ReadOptions) -> Iterator[Record]:
    """A ranking by the person's scores for each turn with several replies; the chosen one goes on."""
    context: Turns = ()
    replies: list[Node] = []
    for turn in (*row.get("conversation_history").items(), None):
        if turn is not None and turn.get("role").text() == "model":
            replies.append(turn)
            continue
        if len(replies) > 1:
            yield Ranking(
                prompt=context,
                completions=tuple(read_response(reply.get("content"), context) for reply in replies),
                ranks=ranks_of([reply.get("score").number() for reply in replies]),
                annotator=optional_name(row, "user_id"),
                category=optional_name(row, "conversation_type"),
            )
        chosen = [reply for reply in replies if reply.get("if_chosen").boolean()][:1]
        context += tuple(part for reply in chosen for part in assistant_turn(reply.get("content").text()))
        context, replies = context if turn is None else (*context, *user_turn(turn.get("content").text())), []


def _rewardbench2(row: Node, options: ReadOptions) -> Iterator[Record]:
    """All right answers share rank 1 and all wrong ones the rank after them, so ties stay ties."""
    prompt = read_prompt(row.get("prompt"))
    right, wrong = (
        tuple(read_completion(item, prompt) for item in row.get(side).items())
        for side in ("chosen", "rejected")
    )
    if not right or not wrong:
        expected = "one answer or more on each side"
        raise BadRowError(
            "too few answers", "rejected" if right else "chosen", expected=expected, found="none"
        )
    ranks = (1.0,) * len(right) + (1.0 + len(right),) * len(wrong)
    category = optional_name(row, "subset")
    yield Ranking(prompt=prompt, completions=right + wrong, ranks=ranks, category=category)


_MODELS = FieldType(name="two names", matches=lambda node: isinstance(node.value, list | tuple))

VOTE_FORMATS = (
    RowFormat(
        name="arena",
        title="Chatbot Arena votes",
        schema={"conversation_a": MESSAGES, "conversation_b": MESSAGES, "winner": TEXT},
        optional_fields=frozenset(["judge", "language"]),
        parse=_arena,
        produces="comparison of conversations; a tie is one (probability 0.5, or left out by `ties`)",
    ),
    RowFormat(
        name="arena-columns",
        title="Chatbot Arena votes, a column for each verdict",
        schema={
            "prompt": TEXT,
            "response_a": TEXT,
            "response_b": TEXT,
            "winner_model_a": BOOLEAN,
            "winner_model_b": BOOLEAN,
        },
        optional_fields=frozenset(["winner_tie"]),
        parse=_arena_columns,
        produces="comparison of conversations; a tie is one (probability 0.5, or left out by `ties`)",
    ),
    RowFormat(
        name="arena-log",
        title="the log of an arena's server",
        schema={"type": TEXT, "models": _MODELS, "states": OBJECTS},
        parse=_arena_log,
        produces="comparison of conversations; lines that are no vote are left out; addresses are not read",
    ),
    RowFormat(
        name="ranked",
        title="answers with their ranks",
        schema={"prompt": TEXT_OR_MESSAGES, "completions": TEXTS_OR_CONVERSATIONS, "ranks": NUMBERS},
        optional_fields=frozenset(AnnotationInfo.__annotations__),
        parse=_ranked,
        produces="ranking; 1 is best",
        is_generic=True,
    ),
    RowFormat(
        name="scored",
        title="answers with their scores",
        schema={"prompt": TEXT_OR_MESSAGES, "completions": TEXTS_OR_CONVERSATIONS, "scores": NUMBERS},
        optional_fields=frozenset(AnnotationInfo.__annotations__),
        excluded_fields=frozenset(["ranks"]),
        parse=_scored,
        produces="ranking; the highest score is best",
        is_generic=True,
    ),
    RowFormat(
        name="pku-saferlhf",
        title="PKU-SafeRLHF",
        schema={"prompt": TEXT, "response_0": TEXT, "response_1": TEXT, "better_response_id": NUMBER},
        optional_fields=frozenset(["is_response_0_safe", "is_response_1_safe"]),
        parse=_safe_rlhf,
        produces="comparison by `better_response_id`; an answer that is not safe has the flag `unsafe`",
    ),
    RowFormat(
        name="alpaca-farm",
        title="AlpacaFarm",
        schema={"instruction": TEXT, "output_1": TEXT, "output_2": TEXT, "preference": NUMBER},
        optional_fields=frozenset(["input"]),
        parse=_alpaca_farm,
        produces="comparison; a preference between 1 and 2 is a probability, and 1.5 a tie",
    ),
    RowFormat(
        name="webgpt",
        title="WebGPT comparisons",
        schema={"question": OBJECT, "answer_0": TEXT, "answer_1": TEXT, "score_0": NUMBER, "score_1": NUMBER},
        parse=_webgpt,
        produces="comparison; `strength` is the lead in score, and equal scores are a tie",
    ),
    RowFormat(
        name="prism",
        title="PRISM conversations",
        schema={"conversation_history": OBJECTS, "conversation_type": TEXT},
        optional_fields=frozenset(["user_id"]),
        parse=_prism,
        without_records="conversations without two replies to one turn",
        produces="a ranking by score for each turn with two replies or more; `category` is the type",
    ),
    RowFormat(
        name="rewardbench2",
        title="RewardBench 2",
        schema={"prompt": TEXT_OR_MESSAGES, "chosen": TEXTS, "rejected": TEXTS},
        optional_fields=frozenset(["subset"]),
        parse=_rewardbench2,
        produces="ranking in which all right answers share rank 1; `category` is the subset",
    ),
)
