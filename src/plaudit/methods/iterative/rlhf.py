"""Reinforcement learning from human feedback, round after round.

Answers of the newest policy are compared, a reward learns from all comparisons so far, and the policy is
improved by it: Christiano et al. 2017, arXiv:1706.03741; online in rounds Bai et al. 2022, arXiv:2204.05862.

A round has files of answers, comparisons and measurements, and the configs of its reward run and its policy
run. ``checkpoints/round-N-drawn.json``, ``round-N-compared.json`` and ``round-N.json`` say which parts
are there, with the hashes of their files. A part that was stopped begins again from the same seed, so it ends
the same.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Judge
from plaudit.data.read import read_records
from plaudit.data.records import (
    RANDOM,
    Comparison,
    Prompt,
    assistant_turn,
    chosen_by,
    pictures,
    plain_text,
    user_turn,
)
from plaudit.data.write import write_records
from plaudit.engine.distributed import Ranks, process_group
from plaudit.engine.run_folder import RunFolder
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.evaluation.policies.generate import written_answers
from plaudit.evaluation.reward_models.accuracy import pair_accuracy
from plaudit.evaluation.reward_models.pairs import has_verdict, pair_columns, score_records, scored_pairs
from plaudit.files import atomic, exact_json
from plaudit.methods.iterative import run
from plaudit.methods.iterative.comparisons import (
    AnswerPair,
    ask_people,
    check_people,
    count_unjudged,
    judge_pairs,
    make_pairs,
)
from plaudit.methods.iterative.config import PEOPLE, RewardRunSettings, RlhfConfig, policy_settings
from plaudit.methods.iterative.rounds import (
    ScoredAnswer,
    drawn_answers,
    figures_as_json,
    generation_note,
    load_prompts,
    prompts_of_round,
    read_answers,
    round_sampler,
)
from plaudit.methods.policy.config import PolicyConfig, policy_config_type
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.methods.policy.run import policy
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.losses import loss_name_for
from plaudit.methods.reward_model.run import reward
from plaudit.rewards.combine.manifest import COMBINED_FILE
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.load import load_reward
from plaudit.rewards.selection import choose, pool_of, refuse_method
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt

_SHARED_SETTINGS = (
    *("max_length", "turns", "dtype", "compile", "device", "shard"),
    *("seed", "sinks", "optimizer", "memory", "safety", "sample"),
)
"""Settings of the command that its reward runs have too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlhfRound:
    """The models and files of one round. Example: ``rlhf_round(config, 2).folder``."""

    number: int
    folder: Path
    generator: Path
    """The policy that generates the answers which are compared: that of the round before."""
    model: Path
    previous_reward: Path | None
    reward: Path
    """The folder of this round's reward: a model, or an ensemble."""

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    @property
    def comparisons(self) -> Path:
        return self.folder / "comparisons.jsonl"

    @property
    def snapshot(self) -> Path:
        """Of people's comparisons, what leads from each to its events in the label store."""
        return self.folder / "comparisons.snapshot.json"

    @property
    def train(self) -> Path:
        return self.folder / "train.jsonl"

    @property
    def held_out(self) -> Path:
        """All comparisons so far that no reward learns from; there may be none, and then no file."""
        return self.folder / "held-out.jsonl"

    @property
    def reward_run(self) -> Path:
        return self.folder / "reward"

    @property
    def policy_run(self) -> Path:
        return self.folder / "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFigures:
    """The figures of a round's comparisons, part of a line of ``rounds.jsonl``."""

    round: int
    prompts: int
    pairs: int
    ties: int
    unjudged: int
    train: int
    held_out: int
    """Comparisons of this round that no reward learns from."""

    @property
    def sentence(self) -> str:
        return (
            f"round {self.round}: {self.pairs} pairs of answers to {self.prompts} prompts, {self.ties} ties, "
            f"{self.unjudged} without a verdict; {self.train} comparisons are trained, {self.held_out} of "
            "the new ones are held out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFigures:
    """The figures of a round's reward and policy; None where there was nothing to measure them by."""

    round: int
    old_on_new: float | None
    """How often the reward of the round before is right on all new comparisons."""
    old_held_out: float | None
    new_held_out: float | None
    reward: float | None
    """What the new reward says of the policy's answers at last: on held-out prompts, where there are some."""
    kl: float | None
    """How far the policy is from its reference then, in nats an answer."""

    @property
    def sentence(self) -> str:
        words: list[str] = []
        if self.old_on_new is not None:
            words.append(f"the last reward is right on {self.old_on_new:.0%} of the new comparisons")
        if self.new_held_out is None:
            words.append("no new comparison is held out")
        else:
            old = "" if self.old_held_out is None else f", the last one on {self.old_held_out:.0%}"
            words.append(f"the new reward is right on {self.new_held_out:.0%} of those held out{old}")
        words.append(
            f"the policy's reward is {_format_number(self.reward)}, its KL {_format_number(self.kl)}"
        )
        return f"round {self.round}: {'; '.join(words)}"


def prompts_file(config: RlhfConfig) -> Path:
    """The prompts as they are asked: a chat model's always by turns, so that every reward reads the same."""
    return config.out / "prompts.jsonl"


def held_out_file(config: RlhfConfig) -> Path:
    return config.out / "held-out-prompts.jsonl"


def rlhf_round(config: RlhfConfig, number: int) -> RlhfRound:
    rounds_folder = config.out / "rounds"
    newest = rounds_folder / str(number - 1) / "policy" / "model" if number > 1 else config.model
    return RlhfRound(
        number=number,
        folder=rounds_folder / str(number),
        generator=newest,
        model=newest if config.loop.starts == "newest" else config.model,
        previous_reward=_reward_folder(config, rounds_folder / str(number - 1)) if number > 1 else None,
        reward=_reward_folder(config, rounds_folder / str(number)),
    )


def reward_config(config: RlhfConfig, this_round: RlhfRound) -> RewardConfig:
    settings = config.reward_run
    run_fields: dict[str, Any] = {name: getattr(config, name) for name in _SHARED_SETTINGS}
    run_fields |= {
        field.name: getattr(settings, field.name)
        for field in fields(RewardRunSettings)
        if field.name not in ("start", "held_out")
    }
    previous = this_round.previous_reward if settings.start == "newest" else None
    return RewardConfig(
        **run_fields,
        model=previous or config.model,
        data=this_round.train,
        # Comparisons are held out by prompt over all rounds already; a share of its own would split again.
        held_out=str(this_round.held_out) if this_round.held_out.exists() else "0",
        out=this_round.reward_run,
        format="plaudit",
        rows=replace(config.rows, split=None),
    )


def policy_config(config: RlhfConfig, this_round: RlhfRound) -> PolicyConfig:
    round_fields = {"model", "prompts", *run.FIELDS_OF_FILE, "held_out", "out", "reference"}
    shared = {field.name for field in fields(RlhfConfig) if field.init and field.name not in round_fields}
    run_fields: dict[str, Any] = {
        field.name: getattr(config, field.name) for field in fields(PolicyConfig) if field.name in shared
    }
    held_out = config.held_out if config.held_out_share is not None else str(held_out_file(config))
    start_differs = config.loop.reference == "start" and this_round.model != config.model
    start_model = config.model if start_differs else None
    reference = replace(config.reference, model=config.reference.model or start_model)
    config_type = policy_config_type(config.loop.teach)
    return config_type(
        **run_fields,
        **policy_settings(config),
        model=this_round.model,
        prompts=prompts_file(config),
        format="plaudit",
        held_out=held_out,
        reward=str(this_round.reward),
        out=this_round.policy_run,
        reference=reference,
    )


def _reward_folder(config: RlhfConfig, folder: Path) -> Path:
    """An ensemble is the run itself, which then has no model of its own."""
    return folder / "reward" if config.reward_run.ensemble.members > 1 else folder / "reward" / "model"


def _format_number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def generate_and_compare(
    config: RlhfConfig, this_round: RlhfRound, folder: RunFolder | None, ranks: Ranks
) -> None:
    """Generate answers on all ranks and compare them on the first, which has the folder.
    Raises `WaitingError` while people have not answered."""
    console = ConsoleSink(quiet=True)
    if this_round.number == 1 and folder is not None:
        sources = (config.loop.data, None if config.comparisons == PEOPLE else config.comparisons)
        words = [str(source) for source in sources if source]
        for note in (*folder.notes, *run.loop_lineage("rlhf", config, words, folder)):
            console.note(note)
    marker = None if folder is None else _marker_file(folder, this_round, "-compared")
    if ranks.first_says(marker is not None and marker.exists()):
        if marker is not None:
            run.refuse_changed_files(_comparison_files(this_round), marker, this_round.number)
        return
    # Before answers are drawn: a judge that cannot be asked must not cost a night.
    judge = None
    if folder is not None:
        judge = _judge_of(config)
        atomic.make_folder(this_round.folder)
        atomic.remove_leftovers(this_round.folder)
    encoder = make_encoder(config.model)
    initial = _initial_comparisons(config, encoder) if config.loop.data is not None else []
    written = _written(config)
    prompts, notes = _load_round_prompts(config, encoder, folder)
    prompts = prompts_of_round(prompts, config.loop.prompts, this_round.number, config.seed)
    # Marked by itself: people may take days over the pairs, and must come back to the same answers.
    _generate_answers(config, this_round, folder, prompts, notes if this_round.number == 1 else [], ranks)
    others = _other_answers(config, this_round, folder, prompts, written, ranks)
    if marker is None:
        return
    groups = read_answers(this_round.answers)
    pairs = make_pairs(prompts, groups, _round_seed(config, this_round), others)
    pairs = _chosen_pairs(config, this_round, folder, pairs)
    new = _compare(config, this_round, pairs, judge)
    figures = _write_comparisons(config, this_round, new, initial)
    figures = replace(figures, prompts=len(prompts), pairs=len(pairs), unjudged=count_unjudged(pairs, new))
    # Last of all: without its marker a round is compared anew, from the same seed.
    run.write_marker(marker, _comparison_files(this_round), figures_as_json(figures))
    console.note(figures.sentence)


def measure_round(config: RlhfConfig, this_round: RlhfRound, folder: RunFolder) -> None:
    """Measure the reward and the policy of a round, and write its line of ``rounds.jsonl``."""
    marker = _marker_file(folder, this_round)
    if not marker.exists():
        new = _read_comparisons(this_round.comparisons)
        held_out = [row for row in new if _is_held_out(config, row)]
        last = exact_json.loads((this_round.policy_run / "summary.json").read_bytes())["last"]
        figures = LearningFigures(
            round=this_round.number,
            old_on_new=_reward_accuracy(this_round.previous_reward, new, config),
            old_held_out=_reward_accuracy(this_round.previous_reward, held_out, config),
            new_held_out=_reward_accuracy(this_round.reward, held_out, config),
            # Held-out prompts first: on trained ones the policy has had its reward to climb.
            reward=last.get("held_out/reward", last.get("reward")),
            kl=last.get("held_out/kl", last.get("kl")),
        )
        compared = run.read_figures(_marker_file(folder, this_round, "-compared"))
        run.write_marker(marker, (), {**compared, **figures_as_json(figures)})
        ConsoleSink(quiet=True).note(figures.sentence)
    rounds = (rlhf_round(config, number) for number in range(1, config.loop.rounds + 1))
    run.write_round_figures(folder, [(_marker_file(folder, other),) for other in rounds])


def _generate_answers(
    config: RlhfConfig,
    this_round: RlhfRound,
    folder: RunFolder | None,
    prompts: Sequence[EncodedPrompt],
    notes: Sequence[str],
    ranks: Ranks,
    source: str = POLICY,
) -> None:
    model, path, part = _source(config, this_round, source)
    marker = None if folder is None else _marker_file(folder, this_round, part)
    if ranks.first_says(marker is not None and marker.exists()):
        if marker is not None:
            run.refuse_changed_files((path,), marker, this_round.number)
        return
    note = generation_note(this_round.number, config.loop.answers, len(prompts), model)
    # Streams of their own below the round's seed: drawing, order of display and comparer never meet.
    stream = f"{_round_seed(config, this_round)}/{part.removeprefix('-')}"
    settings = config.draw.sampling(random.Random(stream).getrandbits(32))
    # No scores: in this loop pairs are judged, and not answers.
    with round_sampler(model, config, ranks, path.parent, (*notes, note)) as (sampler, tell):
        list(drawn_answers(path, prompts, sampler, None, settings, config.loop.answers, ranks, tell))
    if marker is not None:
        run.write_marker(marker, (path,), {})


def _chosen_pairs(
    config: RlhfConfig, this_round: RlhfRound, folder: RunFolder | None, pairs: list[AnswerPair]
) -> list[AnswerPair]:
    """The pairs that are compared, the same ones whenever the round is taken up again."""
    if config.loop.choose is None or folder is None:
        return pairs
    marker, path = _marker_file(folder, this_round, "-chosen"), this_round.folder / "chosen.json"
    if marker.exists():
        run.refuse_changed_files((path,), marker, this_round.number)
    else:
        previous = this_round.previous_reward
        method = RANDOM if previous is None else config.loop.choose
        reward = load_reward(previous, device=config.device) if previous and method != RANDOM else None
        pool, places = pool_of([pair.task for pair in pairs], reward, method)
        how = {"at_random": config.loop.at_random, "seed": _round_seed(config, this_round)}
        chosen = [
            {"pair": pairs[places[each.place]].number, "method": each.method, "propensity": each.propensity}
            for each in choose(pool, config.loop.most or len(pairs), method, **how)
        ]
        # Kept: scores may differ in their last bits, and people come back to the same pairs days later.
        atomic.write_json(path, chosen)
        run.write_marker(marker, (path,), {})
    ways = {way.pop("pair"): way for way in exact_json.loads(path.read_bytes())}
    return [replace(pair, **ways[pair.number]) for pair in pairs if pair.number in ways]


def _source(config: RlhfConfig, this_round: RlhfRound, source: str) -> tuple[Path, Path, str]:
    # The model of a source, the file of its answers, and the part of the round that draws them.
    if source == POLICY:
        return this_round.generator, this_round.answers, "-drawn"
    reference = config.reference.model or config.model
    model = {"start": config.model, "reference": reference}.get(source, Path(source))
    number = config.loop.against.index(source) + 1
    return model, this_round.folder / f"answers-against-{number}.jsonl", f"-drawn-against-{number}"


def _written(config: RlhfConfig) -> dict[str, str]:
    if WRITTEN not in config.loop.against:
        return {}
    reading = read_records(config.prompts, format=config.format, options=config.read_options)
    return written_answers(reading.records)


def _other_answers(
    config: RlhfConfig,
    this_round: RlhfRound,
    folder: RunFolder | None,
    prompts: Sequence[EncodedPrompt],
    written: Mapping[str, str],
    ranks: Ranks,
) -> list[tuple[str, Sequence[ScoredAnswer]]] | None:
    """For each prompt the source of the other answer, another in each round, and its answers."""
    words = config.loop.against
    if words == (POLICY,):
        return None
    sources = [words[(place + this_round.number) % len(words)] for place in range(len(prompts))]
    by_source = dict[str, Iterator[Sequence[ScoredAnswer]]]()
    for word in dict.fromkeys(sources):
        part = [prompt for prompt, source in zip(prompts, sources, strict=True) if source == word]
        if word == WRITTEN:
            answers = [written[plain_text(prompt.text)] for prompt in part]
            by_source[word] = ((ScoredAnswer(text=a, tokens=0, ended=True, score=None),) for a in answers)
        elif word != POLICY:
            _generate_answers(config, this_round, folder, part, (), ranks, word)
            if folder is not None:
                by_source[word] = iter(read_answers(_source(config, this_round, word)[1]))
    if folder is None:
        return None
    groups = zip(read_answers(this_round.answers), sources, strict=True)
    by_source[POLICY] = iter([group for group, source in groups if source == POLICY])
    return [(source, next(by_source[source])) for source in sources]


def _judge_of(config: RlhfConfig) -> Judge | None:
    if config.comparisons != PEOPLE:
        return judge_named(config.comparisons, JudgeSettings(noise=config.loop.noise))
    check_people(config.store, config.loop.project)
    return None


def _compare(
    config: RlhfConfig, this_round: RlhfRound, pairs: Sequence[AnswerPair], judge: Judge | None
) -> list[Comparison]:
    if judge is None:
        source = {"model": str(this_round.generator), "round": this_round.number}
        where = {"store": config.store, "project": config.loop.project}
        ask_people(pairs, this_round.comparisons, **where, source=source)
        # From the file: rows of people are written by the store.
        return _read_comparisons(this_round.comparisons)
    new = judge_pairs(judge, pairs, _round_seed(config, this_round))
    if not new:
        raise UserError(
            f"round {this_round.number}: nothing was said of any pair, so there is nothing to learn from"
        )
    write_records(new, this_round.comparisons)
    return new


def _load_round_prompts(
    config: RlhfConfig, encoder: Encoder, folder: RunFolder | None
) -> tuple[tuple[EncodedPrompt, ...], list[str]]:
    quarantine = folder and folder.path
    loaded, notes = load_prompts(config, encoder, quarantine)
    prompts = _as_chat_prompts(loaded, encoder)
    files = {prompts_file(config): prompts}
    if config.held_out_share is None:
        held_out_prompts, held_out_notes = load_prompts(
            replace(config, prompts=Path(config.held_out)), encoder, quarantine
        )
        files[held_out_file(config)] = _as_chat_prompts(held_out_prompts, encoder)
        notes += held_out_notes
    # Not once answers are drawn: the lineage of every policy run holds the hash of these files.
    if folder is not None and not _marker_file(folder, rlhf_round(config, 1), "-drawn").exists():
        for path, file_prompts in files.items():
            records = (
                Prompt(
                    prompt=each.text, answer=each.reference_answer, metadata=each.metadata, origin=each.origin
                )
                for each in file_prompts
            )
            write_records(records, path)
    return prompts, notes


def _as_chat_prompts(prompts: Sequence[EncodedPrompt], encoder: Encoder) -> tuple[EncodedPrompt, ...]:
    return tuple(
        replace(prompt, text=user_turn(prompt.text))
        if isinstance(prompt.text, str) and encoder.asks_in_turns
        else prompt
        for prompt in prompts
    )


def _as_chat_comparison(row: Comparison) -> Comparison:
    if not isinstance(row.prompt, str):
        return row
    chosen, rejected = (assistant_turn(plain_text(text)) for text in (row.chosen, row.rejected))
    return replace(row, prompt=user_turn(row.prompt), chosen=chosen, rejected=rejected)


def _write_comparisons(
    config: RlhfConfig, this_round: RlhfRound, new: Sequence[Comparison], initial: Sequence[Comparison]
) -> ComparisonFigures:
    # From the files, since a loop that goes on has no memory of its earlier rounds.
    earlier = [rlhf_round(config, number) for number in range(1, this_round.number)]
    so_far = [*initial, *(row for other in earlier for row in _read_comparisons(other.comparisons)), *new]
    # A reward that goes on has the earlier comparisons in its weights already.
    continues = config.reward_run.start == "newest" and this_round.number > 1
    train = [row for row in (new if continues else so_far) if not _is_held_out(config, row)]
    # Those of all rounds: no reward ever saw them, and more of them measure more sharply.
    held_out = [row for row in so_far if _is_held_out(config, row)]
    if not train:
        raise UserError(
            f"round {this_round.number}: all {len(held_out)} comparisons are held out; set "
            "--reward-run.held-out lower"
        )
    write_records(train, this_round.train)
    if held_out:
        write_records(held_out, this_round.held_out)
    return ComparisonFigures(
        round=this_round.number,
        prompts=0,
        pairs=0,
        ties=sum(row.probability == 0.5 for row in new),
        unjudged=0,
        train=len(train),
        held_out=sum(_is_held_out(config, row) for row in new),
    )


def _initial_comparisons(config: RlhfConfig, encoder: Encoder) -> list[Comparison]:
    assert config.loop.data is not None
    # Another file than that of the prompts, which --columns and --leave-out are about.
    options = ReadOptions(split=config.rows.split, ties=config.rows.ties)
    kinds = ("comparison",)
    reading = read_records(config.loop.data, kinds=kinds, threshold=config.rows.threshold, options=options)
    rows = [row for row in reading.records if isinstance(row, Comparison)]
    return [_as_chat_comparison(row) for row in rows] if encoder.asks_in_turns else rows


def _read_comparisons(path: Path) -> list[Comparison]:
    rows = read_records(path, format="plaudit", kinds=("comparison",)).records
    return [row for row in rows if isinstance(row, Comparison)]


def _is_held_out(config: RlhfConfig, row: Comparison) -> bool:
    """Whether a comparison is held out: by its prompt alone, so that no other round trains it."""
    # Pictures count: one question about two pictures is two prompts.
    picture_names = "".join(f"/{picture}" for picture in pictures(row.prompt))
    draw = random.Random(f"{config.seed}/compared/{plain_text(row.prompt)}{picture_names}").random()
    return draw < config.reward_run.held_out


def _reward_accuracy(reward: Path | None, rows: Sequence[Comparison], config: RlhfConfig) -> float | None:
    # Of a tie between answers no order of two scores is the right one, and what a score chose is no sample.
    decided = [row for row in rows if row.probability != 0.5 and chosen_by(row) is None]
    if reward is None or not decided:
        return None
    scored = scored_pairs(decided, score_records(decided, load_reward(reward, device=config.device)))
    with_verdict = [pair for pair in scored if has_verdict(pair)]
    return float(pair_accuracy(pair_columns(with_verdict)).mean()) if with_verdict else None


def _comparison_files(this_round: RlhfRound) -> list[Path]:
    may_be = [path for path in (this_round.held_out, this_round.snapshot) if path.exists()]
    return [this_round.answers, this_round.comparisons, this_round.train, *may_be]


def _marker_file(folder: RunFolder, this_round: RlhfRound, part: str = "") -> Path:
    return folder.checkpoints / f"round-{this_round.number}{part}.json"


def _round_seed(config: RlhfConfig, this_round: RlhfRound) -> str:
    return f"{config.seed}/round/{this_round.number}"


def rlhf(config: RlhfConfig) -> Path | None:
    """Run all rounds; returns the model's folder on the first rank, None where nothing was left to do."""
    rounds = [rlhf_round(config, number) for number in range(1, config.loop.rounds + 1)]
    # Called for their refusals: a bad setting shall not surface after a round of answers.
    configured_algorithm(config.loop.teach, policy_config(config, rounds[0]))
    loss_name_for("comparisons", config.reward_run.reward)
    refuse_method(config.loop.choose or RANDOM, config.reward_run.ensemble.members)
    for this_round in rounds:
        # A process group for each part: the runs in between open groups of their own.
        with process_group(config.device) as ranks, run.open_loop_folder(config, ranks) as folder:
            generate_and_compare(config, this_round, folder, ranks)
            if run.is_loop_finished(config, ranks):
                return None
            # Of an ensemble the file that says how it is combined is written last.
            combined = ranks.first_says((this_round.reward_run / COMBINED_FILE).exists())
            reward_trained = combined or run.is_trained(this_round.reward_run, ranks)
            policy_trained = run.is_trained(this_round.policy_run, ranks)
        if not reward_trained:
            reward(reward_config(config, this_round))
        if not policy_trained:
            policy(config.loop.teach, policy_config(config, this_round))
        with process_group(config.device) as ranks, run.open_loop_folder(config, ranks) as folder:
            if folder is not None:
                measure_round(config, this_round, folder)
            # No rank may start the next round before the first one has written this one's files.
            ranks.barrier()
    with process_group(config.device) as ranks, run.open_loop_folder(config, ranks) as folder:
        if folder is not None:
            run.copy_final_model(folder, rounds[-1].policy_run / "model")
        ranks.barrier()
    return config.out / "model" if ranks.is_first else None
