"""Layouts with scores or votes beside the answers: SHP, HelpSteer2, HelpSteer3, UltraFeedback, summaries.

Of Summarize-from-feedback (Stiennon et al. 2020, https://arxiv.org/abs/2009.01325) the ``note`` is not read:
the annotator wrote it before the post was seen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import fmean

from plaudit.data.fields import BadRowError, Node, describe_value, optional_name, optional_number
from plaudit.data.formats.layout import (
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_MESSAGES,
    ReadOptions,
    RowFormat,
    ranks_of,
)
from plaudit.data.formats.votes import picked
from plaudit.data.records import Ranking, Rating, Record
from plaudit.data.turns import read_completion, read_prompt

HELPSTEER_ASPECTS = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
"""What HelpSteer2 rates, each from 0 to 4."""
ULTRA_ASPECTS = ("instruction_following", "honesty", "truthfulness", "helpfulness")
"""What UltraFeedback rates, each from 1 to 5."""


def _shp(row: Node, options: ReadOptions) -> Iterable[Record]:
    """Reddit's votes (Ethayarajh et al. 2022, https://arxiv.org/abs/2110.08420): label 1 is answer A."""
    prompt = row.get("history").text()
    a_wins = row.get("labels").boolean()
    lead = row.get("score_A").number() - row.get("score_B").number()
    pair = picked(row.get("human_ref_A"), row.get("human_ref_B"), prompt, lead)
    if lead == 0:
        expected = "answers with different scores"
        raise BadRowError("tie as preference", "labels", expected=expected, found="score_A = score_B")
    if (lead > 0) != a_wins:
        raise row.get("labels").error("wrong value", f"{int(lead > 0)}, as score_A and score_B have it")
    return (replace(pair, strength=abs(lead), category=optional_name(row, "domain")),)


def _helpsteer2(row: Node, options: ReadOptions) -> Iterable[Record]:
    """Five ratings from 0 to 4 (Wang et al. 2024, https://arxiv.org/abs/2406.08673)."""
    prompt = row.get("prompt").text()
    response = read_completion(row.get("response"), prompt)
    return tuple(
        Rating(
            prompt=prompt, completion=response, score=row.get(aspect).number_between(0.0, 4.0), aspect=aspect
        )
        for aspect in HELPSTEER_ASPECTS
    )


def _helpsteer3(row: Node, options: ReadOptions) -> Iterable[Record]:
    """-3 to 3, negative for the first response, 0 a tie (Wang et al. 2025, https://arxiv.org/abs/2503.04378)."""
    prompt = read_prompt(row.get("context"))
    preference = row.get("overall_preference").number_between(-3.0, 3.0)
    pair = picked(row.get("response1"), row.get("response2"), prompt, -preference)
    return (replace(pair, strength=abs(preference), category=optional_name(row, "domain")),)


def _ultrafeedback(row: Node, options: ReadOptions) -> Iterator[Record]:
    """Four ratings an answer, and a ranking by their mean (Cui et al. 2023, https://arxiv.org/abs/2310.01377)."""
    # ``overall_score`` is never read: in files made before 2023-12-29 some thousands of 1s stand there as 10.
    prompt, category = row.get("instruction").text(), optional_name(row, "source")
    rated = tuple(
        (read_completion(item.get("response"), prompt), _aspect_ratings(item.get("annotations")))
        for item in row.get("completions").items()
    )
    ranked = [(response, fmean(scores.values())) for response, scores in rated if scores]
    if len(ranked) > 1:
        completions, means = zip(*ranked, strict=True)
        yield Ranking(prompt=prompt, completions=completions, ranks=ranks_of(means), category=category)
    for response, scores in rated:
        for aspect, score in scores.items():
            yield Rating(prompt=prompt, completion=response, score=score, aspect=aspect, category=category)


def _aspect_ratings(annotations: Node) -> dict[str, float]:
    """The ratings of one answer; an aspect that was not applicable is absent."""
    nodes = {aspect: annotations.get(aspect).get("Rating") for aspect in ULTRA_ASPECTS}
    return {aspect: _read_rating(node) for aspect, node in nodes.items() if node.value != "N/A"}


def _read_rating(node: Node) -> float:
    """``Rating`` is a string such as ``"4"``."""
    value = node.value
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, str):
        raise node.wrong_type_error("a rating from 1 to 5, or N/A")
    return Node(value=number, path=node.path).number_between(1.0, 5.0)


AXES = ("overall", "accuracy", "coverage", "coherence")
"""What a summary is rated on, each from 1 to 7."""


def _post_prompt(info: Node) -> str:
    """The post (Reddit) or article (news) as the paper's models saw it."""
    article = info.optional("article")
    if article is not None:
        return f"{article.text()}\n\nTL;DR:"
    return (
        f"SUBREDDIT: r/{info.get('subreddit').text()}\nTITLE: {info.get('title').text()}\n"
        f"POST: {info.get('post').text()}\nTL;DR:"
    )


def _category(info: Node) -> str | None:
    return optional_name(info, "subreddit") or optional_name(info, "site")


def _comparison_row(row: Node, options: ReadOptions) -> Iterator[Record]:
    prompt = _post_prompt(row.get("info"))
    summaries = row.get("summaries").items()
    if len(summaries) != 2:
        raise BadRowError("wrong value", "summaries", expected="two summaries", found=str(len(summaries)))
    choice, extra = row.get("choice"), row.optional("extra")
    if choice.value not in (0, 1):
        raise choice.error("wrong value", "0 or 1")
    first, second = (summary.get("text") for summary in summaries)
    yield replace(
        picked(first, second, prompt, -1 if choice.value == 1 else 1),
        strength=None if extra is None else optional_number(extra, "confidence"),
        annotator=optional_name(row, "worker"),
        category=_category(row.get("info")),
    )


def _axes_row(row: Node, options: ReadOptions) -> Iterable[Record]:
    prompt = _post_prompt(row.get("info"))
    summary = row.get("summary")
    completion = read_completion(summary.get("text"), prompt)
    axes = summary.get("axes")
    scores = {axis: optional_number(axes, axis) for axis in AXES}
    ratings = tuple(
        Rating(
            prompt=prompt,
            completion=completion,
            score=score,
            aspect=axis,
            annotator=optional_name(row, "worker"),
            category=_category(row.get("info")),
        )
        for axis, score in scores.items()
        if score is not None
    )
    if not ratings:
        expected = f"one of {', '.join(AXES)}"
        raise BadRowError(
            "missing field", "summary.axes", expected=expected, found=describe_value(axes.value)
        )
    return ratings


SCORED_FORMATS = (
    RowFormat(
        name="shp",
        title="SHP",
        schema={"history": TEXT, "human_ref_A": TEXT, "human_ref_B": TEXT, "labels": NUMBER},
        optional_fields=frozenset(["score_A", "score_B", "domain"]),
        parse=_shp,
        produces="comparison; `strength` is the lead in votes, `category` the subreddit",
    ),
    RowFormat(
        name="helpsteer2",
        title="HelpSteer2",
        schema={"prompt": TEXT, "response": TEXT, **dict.fromkeys(HELPSTEER_ASPECTS, NUMBER)},
        parse=_helpsteer2,
        produces="five ratings, one an aspect",
    ),
    RowFormat(
        name="helpsteer3",
        title="HelpSteer3 preference",
        schema={
            "context": TEXT_OR_MESSAGES,
            "response1": TEXT_OR_MESSAGES,
            "response2": TEXT_OR_MESSAGES,
            "overall_preference": NUMBER,
        },
        optional_fields=frozenset(["domain"]),
        parse=_helpsteer3,
        produces="comparison with `strength`; a 0 is a tie (probability 0.5, or left out by `ties`); "
        "`category` is the domain",
    ),
    RowFormat(
        name="ultrafeedback",
        title="UltraFeedback",
        schema={"instruction": TEXT, "completions": OBJECTS},
        optional_fields=frozenset(["source"]),
        parse=_ultrafeedback,
        without_records="rows in which every Rating is N/A",
        produces="one ranking by mean rating, and each rating; `overall_score` is never read; `category` "
        "is the source",
    ),
    RowFormat(
        name="summarize-comparisons",
        title="summarize-from-feedback, comparisons",
        schema={"info": OBJECT, "summaries": OBJECTS, "choice": NUMBER},
        optional_fields=frozenset(["worker", "extra"]),
        parse=_comparison_row,
        produces="comparison; `strength` is the confidence, `category` the subreddit or the site",
    ),
    RowFormat(
        name="summarize-axes",
        title="summarize-from-feedback, axis evaluations",
        schema={"info": OBJECT, "summary": OBJECT},
        optional_fields=frozenset(["worker"]),
        parse=_axes_row,
        produces="up to four ratings, one an axis; `category` the subreddit or the site",
    ),
)
