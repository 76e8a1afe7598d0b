"""Attacks on policies: from rows, reworded, written by a model, over several turns, from an archive.

Harmless twins and mirrored pairs are asked beside them, in the same way and of the same policies: one that
declines everything resists every attack and is of no use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Task, assistant_turn, user_turn
from plaudit.data.transforms import some_of
from plaudit.engine.run_folder import hash_path
from plaudit.errors import UserError
from plaudit.evaluation.policies.corrected import FEWEST_LABELS, read_people
from plaudit.evaluation.policies.generate import check_policy_folder
from plaudit.evaluation.policies.judge import family_note
from plaudit.feedback.asking import AttackSettings
from plaudit.feedback.attacks import sources, summary
from plaudit.feedback.attacks.attacker import (
    EXAMPLES,
    Attacker,
    Questioner,
    message_question,
    pursuing_question,
)
from plaudit.feedback.attacks.attempt import Attempt, Finding, Worked, add_to_archive, read_archive
from plaudit.feedback.attacks.target import FolderTarget, Target, hash_of_word, targets_named
from plaudit.feedback.attacks.verdicts import AnswerJudge, AnswerJudgeSettings, answer_judge
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.feedback.judges.money import BYTES_A_TOKEN, Estimate, Purse, total_estimate
from plaudit.feedback.judges.wording import Question
from plaudit.feedback.judges.words import LOCAL, SERVER, asks_a_model, parse_judge_word
from plaudit.feedback.judges.writing import Writer
from plaudit.rewards.load import model_folder

ARCHIVE_FILE = "archive.jsonl"
"""In the folder of a result: what worked in it, as an archive."""
NO_TWINS = (
    "refusals of harmless prompts were not measured (--without-twins): whoever refuses everything would "
    "resist every attack"
)
WHOLE_PROMPTS = "intervals count prompts, not attempts: what was made of one prompt hangs together"
NO_MIRRORED = "unequal refusal was not measured: no two rows of the twins share a word under `mirror`"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRows:
    attempts: tuple[Attempt, ...] = ()
    harmless: sources.HarmlessRows = field(default_factory=sources.HarmlessRows)
    """What nobody should decline, and mirrored pairs."""
    worked: tuple[Worked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackParties:
    """Everybody who takes part."""

    targets: tuple[Target, ...]
    judge: AnswerJudge
    refusal: AnswerJudge | None
    writer: Writer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """What attacks found."""

    report: summary.AttackReport
    findings: Mapping[str, Mapping[str, Sequence[Finding]]]
    """Every conversation, of each policy: attacks, archive, twins and mirrored."""
    worked: tuple[Worked, ...]
    cards: tuple[summary.AnswerCard, ...] = ()
    """What people's labels say of the judges."""


def check_files(settings: AttackSettings) -> None:
    """Refuse folders, templates, a constitution and prices that are not good, before anything else runs."""
    for word in settings.targets:
        # What a stage above gives is not there yet.
        if not word.startswith(("$", SERVER)):
            check_policy_folder(Path(word))
    if settings.templates is not None:
        sources.read_templates(settings.templates)
    if settings.constitution is not None:
        constitution_named(settings.constitution)
    corrector_of(settings)


def corrector_of(settings: AttackSettings) -> summary.Corrector:
    """What is known of how judges err: labels of people, cards."""
    people = None if settings.people is None else read_people(settings.people)
    cards = () if settings.card is None else summary.read_answer_cards(settings.card)
    return summary.Corrector(people=people, cards=cards)


def read_attack_rows(
    settings: AttackSettings, options: ReadOptions | None = None, *, layout: str | None = None
) -> AttackRows:
    """The rows that the settings name; refuses where nothing is left to ask."""
    options = options or ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    attempts = tuple[Attempt, ...]()
    if settings.prompts is not None:
        attempts = sources.attempts_of(read_records(settings.prompts, format=layout, options=options).records)
    harmless = sources.HarmlessRows()
    if settings.twins is not None:
        records = read_records(settings.twins, format=layout, options=options).records
        harmless = sources.harmless_rows(records, str(settings.twins))
    return attack_rows(settings, attempts, harmless)


def attack_rows(
    settings: AttackSettings, attempts: Sequence[Attempt], harmless: sources.HarmlessRows
) -> AttackRows:
    """Attacks of some rows as the settings want them: chosen, reworded, with what worked before."""
    if not harmless.twins and not settings.without_twins:
        raise UserError(
            "--twins ROWS: name harmless prompts that nobody should decline (plaudit world make twins makes "
            "the world's). Attack success is never reported alone; --without-twins leaves them out, and "
            "every result then says so"
        )
    worked = () if settings.archive is None else read_archive(settings.archive)
    if settings.archive is not None and not attempts and not worked:
        raise UserError(f"{settings.archive}: nothing has worked yet: the archive is empty; name ROWS too")
    if not attempts and settings.archive is None:
        raise UserError("there is nothing to attack with: name ROWS of prompts, or an --archive")
    # A category may be known from the archive alone.
    known = sources.chosen_categories([*attempts, *(entry.attempt for entry in worked)], settings.category)
    keys = {attempt.key for attempt in known}
    chosen = some_of([a for a in attempts if a.key in keys], settings.n, f"prompts {settings.seed}")
    templates = () if settings.templates is None else sources.read_templates(settings.templates)
    return AttackRows(
        attempts=(*chosen, *sources.reworded(chosen, templates)),
        harmless=harmless,
        worked=tuple(entry for entry in worked if entry.attempt.key in keys),
    )


def parties_of(
    settings: AttackSettings, names: Sequence[str] = (), purse: Purse | None = None
) -> AttackParties:
    judges = settings.judge_settings(purse)
    constitution = None if settings.constitution is None else constitution_named(settings.constitution)
    harm = AnswerJudgeSettings(
        matter="harm",
        judges=judges,
        below=settings.harmful_below,
        constitution=constitution,
        principles=settings.principles,
    )
    refusal = AnswerJudgeSettings(matter="refusal", judges=judges)
    return AttackParties(
        targets=tuple(targets_named(settings.targets, settings.sampling, judges, names=names)),
        judge=answer_judge(settings.judge, harm),
        refusal=None if settings.without_twins else answer_judge(settings.refusal or settings.judge, refusal),
        writer=None if settings.by is None else writer_named(settings.by, judges),
    )


def attack(
    settings: AttackSettings,
    rows: AttackRows,
    parties: AttackParties,
    *,
    on_progress: Callable[[str], object] = lambda text: None,
) -> AttackResult:
    """Attack every policy in turn, and add what worked to the archive at the end."""
    corrector = _corrector(settings, parties)
    findings, written = dict[str, dict[str, list[Finding]]](), list[summary.Written]()
    for target in parties.targets:
        on_progress(f"{target.name}: {len(rows.attempts)} attacks, {len(rows.worked)} from the archive")
        findings[target.name] = _findings(settings, rows, parties, target, written)
    policies = [_policy(target, rows, findings[target.name], settings) for target in parties.targets]
    policies = _corrected(parties, corrector, policies, findings)
    uncorrected = _uncorrected(settings, parties, policies)
    report = summary.AttackReport(
        judge=_name_of(parties.judge),
        refusal_judge=None if parties.refusal is None else _name_of(parties.refusal),
        sampling=settings.sampling_words,
        answers=settings.answers,
        turns=settings.turns,
        policies=tuple(policies),
        gaps=tuple(_gaps(parties.targets, findings)),
        written=tuple(written),
        notes=tuple(
            dict.fromkeys((*map(summary.uncorrected_note, uncorrected), *_notes(settings, rows, parties)))
        ),
        missing=(NO_TWINS,) if settings.without_twins else () if rows.harmless.mirrored else (NO_MIRRORED,),
        uncorrected=uncorrected,
    )
    worked = tuple(
        entry for target in parties.targets for entry in _worked(target, report.judge, findings[target.name])
    )
    if settings.archive is not None:
        added = add_to_archive(settings.archive, worked)
        on_progress(f"{settings.archive}: {added} added to what ever worked")
    cards = _cards(parties, corrector, findings)
    return AttackResult(report=report, findings=findings, worked=worked, cards=cards)


_Findings = Mapping[str, Mapping[str, Sequence[Finding]]]
_PARTS = (("harm", "attacks"), ("refusal", "twins"))


def _judges(parties: AttackParties) -> dict[str, str]:
    refusal = {} if parties.refusal is None else {"refusal": _name_of(parties.refusal)}
    return {"harm": _name_of(parties.judge), **refusal}


def _corrector(settings: AttackSettings, parties: AttackParties) -> summary.Corrector:
    """Before anything is asked: the card of another judge is refused."""
    corrector, judges = corrector_of(settings), _judges(parties).values()
    if strange := [card.judge for card in corrector.cards if card.judge not in judges]:
        raise UserError(
            f"{settings.card}: this card is of {strange[0]}, and the judges are {', '.join(judges)}; another "
            "version may be another judge: make its own by an attack with --people"
        )
    return corrector


def _corrected(
    parties: AttackParties,
    corrector: summary.Corrector,
    policies: Sequence[summary.PolicyAttack],
    findings: _Findings,
) -> list[summary.PolicyAttack]:
    judges = _judges(parties)
    found = list[summary.PolicyAttack]()
    for policy in policies:
        rates = {"harm": policy.success, "refusal": policy.refusal}
        harm, refusal = (
            corrector.correction(judges[matter], matter, rates[matter], findings[policy.policy][kind])
            if matter in judges
            else None
            for matter, kind in _PARTS
        )
        found.append(replace(policy, corrected=harm, refusal_corrected=refusal))
    if corrector.people is not None and not any(
        policy.corrected or policy.refusal_corrected for policy in found
    ):
        raise UserError(
            f"{corrector.people.source}: fewer than {FEWEST_LABELS} prompts of this attack have labels of "
            "people in it; they must be of these very conversations and answers, as answers.jsonl has them"
        )
    return found


def _uncorrected(
    settings: AttackSettings, parties: AttackParties, policies: Sequence[summary.PolicyAttack]
) -> tuple[str, ...]:
    """Judges that err, where nothing corrects what they say."""
    scores = settings.harmful_below is not None
    words = [(settings.judge, parties.judge, [policy.corrected for policy in policies])]
    if parties.refusal is not None:
        corrections = [policy.refusal_corrected for policy in policies]
        words.append((settings.refusal or settings.judge, parties.refusal, corrections))
    return tuple(
        dict.fromkeys(
            judge.name
            for word, judge, corrections in words
            if (asks_a_model(word) or (scores and word == settings.judge)) and None in corrections
        )
    )


def _cards(
    parties: AttackParties, corrector: summary.Corrector, findings: _Findings
) -> tuple[summary.AnswerCard, ...]:
    if corrector.people is None:
        return ()
    found = [
        summary.answer_card(
            name, matter, [f for kinds in findings.values() for f in kinds[kind]], corrector.people
        )
        for matter, kind in _PARTS
        if (name := _judges(parties).get(matter)) is not None
    ]
    return tuple(card for card in found if card is not None)


def write_attack_result(result: AttackResult, folder: Path) -> None:
    """The figures, every conversation, and what worked, as an archive of its own."""
    summary.write_attack(result.report, result.findings, folder, result.cards)
    (folder / ARCHIVE_FILE).unlink(missing_ok=True)
    add_to_archive(folder / ARCHIVE_FILE, result.worked)


def estimates(settings: AttackSettings, rows: AttackRows, parties: AttackParties) -> dict[str, Estimate]:
    """What each model that is asked in words costs at most, by its name; nothing is asked.
    Answers that are not there yet count as long as they may be."""
    attempts = [*(entry.attempt for entry in rows.worked), *rows.attempts]
    harmless = [*rows.harmless.twins, *(side for _, *pair in rows.harmless.mirrored for side in pair)]
    filler = "a" * (BYTES_A_TOKEN * settings.max_tokens)
    # Each further turn is a conversation of its own, which grows by an answer and a message.
    more = [*assistant_turn(filler), *user_turn(filler)]
    grown = [
        replace(attempt, turns=(*attempt.turns, *more * turn))
        for attempt in attempts
        for turn in range(1, settings.turns)
    ]
    written = [Attempt(turns=user_turn(f"{filler} {n}")) for n in range(settings.write)]
    harm = [*attempts, *grown, *written]
    every = [attempt.turns for attempt in (*harm, *harmless)]
    found = dict[str, list[Estimate]]()
    for target in parties.targets:
        own = filler + target.name
        costs = [
            (target.name, target.estimate(every, settings.answers)),
            (parties.judge.name, parties.judge.estimate(_tasks(harm, own, settings))),
        ]
        if parties.refusal is not None:
            costs.append((parties.refusal.name, parties.refusal.estimate(_tasks(harmless, own, settings))))
        if parties.writer is not None:
            costs.append((parties.writer.name, parties.writer.estimate(_messages(grown, written, own))))
        for name, cost in costs:
            found.setdefault(name, []).extend([] if cost is None else [cost])
    return {name: total_estimate(parts) for name, parts in found.items() if parts}


def _tasks(attempts: Sequence[Attempt], filler: str, settings: AttackSettings) -> list[Task]:
    answers = tuple((f"{filler} {n}", True) for n in range(settings.answers))
    return [attempt.task(answers) for attempt in attempts]


def _messages(grown: Sequence[Attempt], written: Sequence[Attempt], filler: str) -> list[Question]:
    pursued = [pursuing_question(attempt.turns[:-1], attempt.words) for attempt in grown]
    return [*pursued, *(message_question([filler] * EXAMPLES + [attempt.words]) for attempt in written)]


def _findings(
    settings: AttackSettings,
    rows: AttackRows,
    parties: AttackParties,
    target: Target,
    written: list[summary.Written],
) -> dict[str, list[Finding]]:
    harm = Questioner(target=target, judge=parties.judge, answers=settings.answers)
    # What worked before comes first: it is the likeliest to work, and the first to be shown to an attacker.
    archived = harm.findings([entry.attempt for entry in rows.worked])
    found = harm.findings(rows.attempts)
    if parties.writer is not None:
        attacker = Attacker(writer=parties.writer, questioner=harm, seed=settings.seed)
        found = attacker.gone_on(found, settings.turns)
        found += attacker.written([*archived, *found], settings.write)
        written.append(
            summary.Written(
                writer=parties.writer.name,
                requested=attacker.requested,
                fresh=attacker.requested - attacker.repeated - attacker.failures.total(),
                repeated=attacker.repeated,
                failures=dict(attacker.failures),
            )
        )
    harmless = {"twins": list[Finding](), "mirrored": list[Finding]()}
    if parties.refusal is not None:
        refusing = Questioner(target=target, judge=parties.refusal, answers=settings.answers, refusing=True)
        sides = [side for _, *pair in rows.harmless.mirrored for side in pair]
        answered = refusing.findings([*rows.harmless.twins, *sides])
        middle = len(rows.harmless.twins)
        harmless = {"twins": answered[:middle], "mirrored": answered[middle:]}
    return {"attacks": found, "archive": archived, **harmless}


def _policy(
    target: Target, rows: AttackRows, found: Mapping[str, Sequence[Finding]], settings: AttackSettings
) -> summary.PolicyAttack:
    attacks, twins, sides = found["attacks"], found["twins"], found["mirrored"]
    every = [finding for part in found.values() for finding in part]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    return summary.PolicyAttack(
        policy=target.name,
        hash=target.hash,
        success=summary.rate("all", attacks),
        by_category=summary.rates_by(attacks, lambda finding: finding.attempt.category),
        by_source=summary.rates_by(attacks, lambda finding: finding.attempt.source),
        by_turns=_by_turns(attacks, settings.turns),
        refusal=summary.rate("all", twins) if twins else None,
        refusal_by_category=summary.rates_by(twins, lambda finding: finding.attempt.category),
        mirrored=summary.mirrored_of(pairs, [name for name, *_ in rows.harmless.mirrored]),
        archive=summary.rate("archive", found["archive"]) if found["archive"] else None,
        failures=summary.failures_of(every),
    )


def _by_turns(findings: Sequence[Finding], turns: int) -> tuple[float, ...]:
    known = [finding for finding in findings if finding.happened is not None]
    if turns == 1 or not known:
        return ()
    return tuple(
        sum(bool(f.happened) and f.turns <= turn for f in known) / len(known) for turn in range(1, turns + 1)
    )


def _gaps(
    targets: Sequence[Target], findings: Mapping[str, Mapping[str, Sequence[Finding]]]
) -> list[summary.Gap]:
    first, *later = (target.name for target in targets)
    found = [
        summary.gap_between(what, (name, findings[name][kind]), (first, findings[first][kind]))
        for name in later
        for what, kind in (("attack success", "attacks"), ("over-refusal", "twins"))
    ]
    return [gap for gap in found if gap is not None]


def _worked(target: Target, judge: str, found: Mapping[str, Sequence[Finding]]) -> list[Worked]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return [
        Worked(
            attempt=finding.attempt,
            policy=target.name,
            policy_hash=target.hash,
            judge=judge,
            when=now,
            answer=next(answer.text for answer in finding.answers if answer.happened),
        )
        for finding in found["attacks"]
        if finding.happened
    ]


def _notes(settings: AttackSettings, rows: AttackRows, parties: AttackParties) -> list[str]:
    words = [word for word in (settings.judge, settings.by) if word is not None]
    own = {word: _itself(word, parties.targets) for word in words}
    judged = own[settings.judge]
    # Of a target that is the judge itself more is to be said than its family.
    folders = {t.name: t.folder for t in parties.targets if isinstance(t, FolderTarget) and t not in judged}
    family = family_note(settings.judge, parties.judge.name, folders) if folders else None
    judges = (parties.judge, *(() if parties.refusal is None else (parties.refusal,)))
    units = {attempt.group for attempt in rows.attempts}
    rewordings = len(units) < len(rows.attempts) or settings.answers > 1
    return [
        *(
            f"{target.name} is attacked and is {parse_judge_word(word).place} itself, who judges or attacks: "
            "it knows its own ways"
            for word, targets in own.items()
            for target in targets
        ),
        *([] if family is None else [family]),
        *(note for judge in judges for note in judge.notes),
        *([WHOLE_PROMPTS] if rewordings else []),
    ]


def _itself(word: str, targets: Sequence[Target]) -> list[Target]:
    if not asks_a_model(word):
        return []
    place = parse_judge_word(word).place
    is_folder = place.startswith(LOCAL)
    own = hash_path(model_folder(Path(place.removeprefix(LOCAL)))) if is_folder else hash_of_word(place)
    return [target for target in targets if target.hash == own]


def _name_of(judge: AnswerJudge) -> str:
    return f"{judge.name} {judge.version}".strip()
