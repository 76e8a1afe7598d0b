"""Summarize-from-feedback: comparisons and ratings by axis (Stiennon et al. 2020, https://arxiv.org/abs/2009.01325).

The annotator's ``note`` is not read: it was written before the post was seen.
"""

from __future__ import annotations

from plaudit.data.fields import (
    BadRowError,
    Node,
    describe_value,
    optional_name,
    optional_number,
    read_completion,
)
from plaudit.data.formats.layout import NUMBER, OBJECT, OBJECTS, ReadOptions, RowFormat, require_different
from plaudit.data.records import Comparison, Rating, Record

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
    """The subreddit of a post; of an article, the site."""
    return optional_name(info, "subreddit") or optional_name(info, "site")


def _comparison_row(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = _post_prompt(row.get("info"))
    summaries = row.get("summaries").items()
    if len(summaries) != 2:
        raise BadRowError("wrong value", "summaries", expected="two summaries", found=str(len(summaries)))
    first, second = (read_completion(summary.get("text"), prompt) for summary in summaries)
    require_different(first, second, "summaries")
    choice = row.get("choice")
    if choice.value not in (0, 1):
        raise choice.error("wrong value", "0 or 1")
    chosen, rejected = (second, first) if choice.value == 1 else (first, second)
    extra = row.optional("extra")
    return (
        Comparison(
            prompt=prompt,
            chosen=chosen,
            rejected=rejected,
            strength=None if extra is None else optional_number(extra, "confidence"),
            annotator=optional_name(row, "worker"),
            category=_category(row.get("info")),
            origin=origin,
        ),
    )


def _axes_row(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
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
            origin=origin,
        )
        for axis, score in scores.items()
        if score is not None
    )
    if not ratings:
        raise BadRowError(
            "missing field",
            "summary.axes",
            expected=f"one of {', '.join(AXES)}",
            found=describe_value(axes.value),
        )
    return ratings


SUMMARY_FORMATS = (
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
