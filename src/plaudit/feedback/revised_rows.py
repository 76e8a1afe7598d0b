"""What ``plaudit revise`` does: answers are revised, and rows, steps and figures come of it as files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median

from plaudit.data.edits import PairDifferences, split_words
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Judge
from plaudit.data.read import read_records
from plaudit.data.records import Prompt, Record
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies.diversity import common_word_count, distinct_n
from plaudit.evaluation.policies.judge import check_judge, family_note, load_judge
from plaudit.feedback import rounds
from plaudit.feedback.asking import Give, ReviseSettings
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.feedback.judges.money import Estimate, Purse
from plaudit.feedback.judges.rubric import read_yaml
from plaudit.feedback.judges.words import LOCAL, parse_judge_word
from plaudit.feedback.judges.writing import Writer
from plaudit.feedback.scored_rounds import ScoredRounds, score_rounds
from plaudit.files import atomic
from plaudit.rewards.load import model_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Revising:
    """A request that is ready: answers are there, the reviser is loaded, and nothing has been asked."""

    drafts: Sequence[rounds.Draft]
    left_out: Counter[str]
    plan: rounds.RevisionPlan
    writer: Writer
    purse: Purse
    notes: tuple[str, ...]
    judge: Judge | None = None
    settings: ReviseSettings

    def estimate(self) -> Estimate:
        return rounds.estimated_revisions(self.drafts, self.plan, self.writer)

    def run(self) -> rounds.Revisions:
        found = rounds.revise_drafts(self.drafts, self.plan, self.writer)
        return rounds.Revisions(
            items=tuple(found), annotator=f"{self.writer.name}@{self.plan.version(self.writer)}"
        )


def prepare_revising(settings: ReviseSettings, *, layout: str | None = None) -> Revising:
    """Read the rows, of this layout or whichever they have, load the reviser and draw the answers."""
    named = None if settings.constitution is None else constitution_named(settings.constitution)
    how = {"rounds": settings.rounds, "minimal": settings.minimal, "seed": settings.seed}
    how["critiques"] = not settings.without_critique
    plan, judging = rounds.RevisionPlan(constitution=named, **how), settings.judge_settings()
    judge = None
    if settings.score is not None:
        check_judge(settings.score, has_gold=False)
        judge = load_judge(settings.score, settings=judging)
    read_marks(settings.marks)
    source = settings.data or settings.prompts
    assert source is not None, "one of both is given"
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    found = read_records(source, format=layout, options=options)
    print(found.format_sentence)
    are_prompts = found.records and all(isinstance(record, Prompt) for record in found.records)
    if settings.data is not None and are_prompts:
        raise UserError("these rows are prompts alone: name the model whose answers to them are revised")
    writer = writer_named(settings.by, judging)
    drafts, left_out = _drafts(settings, found.records)
    if not drafts:
        counted = ", ".join(f"{count} {why}" for why, count in left_out.items())
        room = "; --max-tokens gives them more room" if rounds.CUT_ANSWER in left_out else ""
        raise UserError(f"{source}: there is no answer to revise ({counted or 'no rows'}){room}")
    note = _own_answers_note(settings, writer)
    return Revising(
        drafts=drafts,
        left_out=left_out,
        plan=plan,
        writer=writer,
        purse=judging.purse,
        notes=() if note is None else (note,),
        judge=judge,
        settings=settings,
    )


def _drafts(settings: ReviseSettings, records: Sequence[Record]) -> tuple[list[rounds.Draft], Counter[str]]:
    if settings.model is None:
        return rounds.drafts_of(records, n=settings.n, seed=settings.seed)
    # Models are slow to import, and rows with answers need none.
    from plaudit.rollouts.local import LocalSampler

    sampler = LocalSampler(model_folder(settings.model), device=settings.device, dtype=settings.dtype)
    return rounds.drawn_drafts(sampler, records, settings.sampling, n=settings.n)


def _own_answers_note(settings: ReviseSettings, writer: Writer) -> str | None:
    if settings.model is None:
        return None
    own, model = parse_judge_word(settings.by).place, model_folder(settings.model).resolve()
    if own.startswith(LOCAL) and model_folder(Path(own.removeprefix(LOCAL))).resolve() == model:
        return f"{writer.name} revises answers of its own: it mends what it can see, and not what it cannot"
    return family_note(settings.by, writer.name, {str(settings.model): settings.model})


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionFigures:
    """What there is to say of revisions."""

    by: str
    outcomes: dict[str, int]
    """Answers that were revised, unchanged, or failed, by reason."""
    left_out: dict[str, int]
    ended_early: int
    """Revised answers whose later rounds failed."""
    before: Watched
    after: Watched
    shared_words: float | None
    """The median token Jaccard of an answer and its revision."""
    characters_changed: float | None
    share_changed: float | None
    tokens: int
    price: float
    scores: ScoredRounds | None = None

    @property
    def sentences(self) -> list[str]:
        """What became of the answers, what was left out, and how far revisions differ."""
        counted = ", ".join(f"{count} {why}" for why, count in self.outcomes.items())
        found = [f"{counted} by {self.by}"]
        if self.left_out:
            reasons = ", ".join(f"{count} {why}" for why, count in self.left_out.items())
            found.append(f"not to be revised: {reasons}")
        if self.ended_early:
            found.append(f"{self.ended_early} have the revision of an earlier round, for a later one failed")
        if self.shared_words is not None:
            found.append(
                f"{self.shared_words:.0%} of words shared (token Jaccard), {self.characters_changed:g} "
                f"characters changed ({self.share_changed:.0%} of the longer text), medians"
            )
        return found + ([] if self.scores is None else self.scores.sentences)

    def lines(self) -> list[str]:
        """The sentences, and a small table of what is watched."""
        return [*self.sentences, *(watched_lines(self.before, self.after) if self.after.answers else [])]


def revision_figures(revising: Revising, revisions: rounds.Revisions) -> RevisionFigures:
    """Outcomes, what is watched before and after, how far both differ, and how good each round is."""
    marks, settings, scores = revising.settings.marks, revising.settings, None
    if revising.judge is not None:
        given = {"people": settings.people, "card": settings.card, "seed": settings.seed}
        scores = score_rounds(revisions.items, revising.judge, **given)
    olds, news = revisions.texts
    before, after = watched(olds, news, read_marks(marks))
    differences = PairDifferences()
    for old, new in zip(olds, news, strict=True):
        differences.add(old, new)
    columns = (differences.shared, differences.characters, differences.shares)
    shared, characters, share = (float(median(found)) if found else None for found in columns)
    return RevisionFigures(
        by=revisions.annotator,
        outcomes=dict(sorted(revisions.outcomes.items())),
        left_out=dict(sorted(revising.left_out.items())),
        ended_early=sum(item.failure is not None and bool(item.steps) for item in revisions.items),
        before=before,
        after=after,
        shared_words=shared,
        characters_changed=characters,
        share_changed=share,
        # Two answers that were revised into one share their later questions, which are paid for once.
        tokens=revising.purse.tokens or sum(item.tokens for item in revisions.items),
        price=round(revising.purse.spent, 9),
        scores=scores,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionFiles:
    """Where what came of revisions is written; None: nowhere."""

    demonstrations: Path | None = None
    pairs: Path | None = None
    steps: Path | None = None
    """A line of JSON for each answer, with all that was asked and said."""
    figures: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path, give: Give) -> RevisionFiles:
        """All of them in a folder, with the rows that are given as ``rows.jsonl``."""
        names = {"demonstrations": "demonstrations.jsonl", "pairs": "pairs.jsonl", give: "rows.jsonl"}
        return cls(
            demonstrations=folder / names["demonstrations"],
            pairs=folder / names["pairs"],
            steps=folder / "steps.jsonl",
            figures=folder / "figures.json",
        )


def write_revisions(
    revising: Revising, revisions: rounds.Revisions, figures: RevisionFigures, out: RevisionFiles
) -> None:
    """Write the files that are wanted; the steps first, which show why where there are no rows."""
    if out.steps is not None:
        rows = revisions.step_rows(revising.plan, revising.writer)
        lines = [f"{json.dumps(row, ensure_ascii=True)}\n" for row in rows]
        atomic.write_text(out.steps, "".join(lines))
    if out.figures is not None:
        atomic.write_json(out.figures, asdict(figures))
    if out.demonstrations is not None:
        write_records(revisions.rows("demonstrations"), out.demonstrations)
    if out.pairs is not None:
        write_records(revisions.rows("pairs"), out.pairs)


OPENING_WORDS = 3

Marks = Mapping[str, tuple[str, ...]]
"""Phrases by the name of their group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The figures of a set of answers."""

    answers: int
    words: float
    marks: Mapping[str, float]
    """By the name of each group of phrases, the share of answers that hold one of them."""
    opening: str
    opening_share: float
    distinct_1: float | None
    """Unlike words over all words, in as many words of each answer before and after."""
    distinct_2: float | None


def read_marks(path: Path | None) -> Marks:
    """The groups of phrases of a YAML file; None: those that come with plaudit."""
    name = "marks.yaml" if path is None else str(path)
    groups = read_yaml(path or files("plaudit.feedback") / "marks.yaml", name, "groups of phrases")
    if not isinstance(groups, dict) or not groups:
        raise UserError(f"{name}: expected groups of phrases, as in refusals: [I will not, I cannot help]")
    for group, phrases in groups.items():
        if not isinstance(phrases, list) or not phrases or not all(map(_is_phrase, phrases)):
            raise UserError(f"{name}: {group}: expected a list of phrases, found {phrases!r:.60}")
    return {str(group): tuple(map(_plain, phrases)) for group, phrases in groups.items()}


def watched(before: Sequence[str], after: Sequence[str], marks: Marks) -> tuple[Watched, Watched]:
    """The figures of answers before and after; sameness is of as many words of each in both.
    Revisers make answers longer, more evasive and more alike (Bai et al. 2022, arXiv:2212.08073). Whatever
    rises here will be learnt by who is trained on the revisions."""
    count = common_word_count([{"": before}, {"": after}])
    return _figures(before, marks, count), _figures(after, marks, count)


def _figures(answers: Sequence[str], marks: Marks, count: int) -> Watched:
    tokens = [split_words(answer) for answer in answers]
    cut = [words[:count] for words in tokens if len(words) >= count]
    openings = Counter(" ".join(answer.split()[:OPENING_WORDS]) for answer in answers)
    [(opening, times)] = openings.most_common(1) or [("", 0)]
    plain = [_plain(answer) for answer in answers]
    return Watched(
        answers=len(answers),
        words=fmean(len(answer.split()) for answer in answers) if answers else 0.0,
        marks={
            group: sum(any(phrase in answer for phrase in phrases) for answer in plain) / max(len(plain), 1)
            for group, phrases in marks.items()
        },
        opening=opening,
        opening_share=times / max(len(answers), 1),
        distinct_1=distinct_n(cut, 1),
        distinct_2=distinct_n(cut, 2),
    )


def watched_lines(before: Watched, after: Watched) -> list[str]:
    rows = [("words, mean", f"{before.words:.1f}", f"{after.words:.1f}")]
    rows += [(group, f"{before.marks[group]:.1%}", f"{after.marks[group]:.1%}") for group in before.marks]
    rows.append(("most frequent opening", f"{before.opening_share:.1%}", f"{after.opening_share:.1%}"))
    rows.append(("distinct-1", _two_places(before.distinct_1), _two_places(after.distinct_1)))
    rows.append(("distinct-2", _two_places(before.distinct_2), _two_places(after.distinct_2)))
    lines = [f"{name:<24}{first:>10}{other:>10}" for name, first, other in rows]
    opening = f"the most frequent opening after: {after.opening!r}"
    return [f"{'':<24}{'before':>10}{'after':>10}", *lines, *([opening] if after.opening else [])]


def _two_places(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _is_phrase(phrase: object) -> bool:
    return isinstance(phrase, str) and bool(phrase.strip())


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
