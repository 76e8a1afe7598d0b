"""The algorithm of a run with its settings, refusals of those that contradict it, and notes on what it does.

Refused are settings from which an algorithm could learn nothing, or something else than is meant.
"""

from dataclasses import replace

from plaudit.errors import UserError
from plaudit.losses.divergence import k1
from plaudit.methods.algorithm import cell_settings
from plaudit.methods.policy import cells
from plaudit.methods.policy.config import POLICY, PolicyConfig
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.methods.policy.shaping import refuse_process_conflicts

Algorithm = str | PolicyAlgorithm
"""A name of the table, or an algorithm of one's own."""


def configured_algorithm(algorithm: Algorithm, config: PolicyConfig) -> PolicyAlgorithm:
    """The algorithm of a name with a config's settings, or a record as it is; contradictions are refused."""
    record = POLICY.configured(algorithm, config)
    # group-z knows whole answers only and would spread a step's payment over all tokens.
    if config.process.pay != "no" and record.advantage is cells.group_z:
        record = replace(record, advantage=cells.group_z_of_steps)
    # A prompt's answers stay together, so more parts than prompts would only be moves without any.
    record = replace(record, minibatches=min(record.minibatches, config.batch_size))
    _refuse_contradictions(record, config)
    return record


def algorithm_note(algorithm: Algorithm, configured: PolicyAlgorithm) -> str:
    """What is optimised; its formula stands only where no setting has put another cell in its place."""
    configured_cells = cells.describe_cells(configured)
    default_cells = configured_cells
    if isinstance(algorithm, str) and algorithm in POLICY.algorithms:
        default_cells = cells.describe_cells(POLICY.make(POLICY.find(algorithm), {}))
    if configured_cells == default_cells:
        return f"{configured.name}: {configured.formula} ({configured_cells})"
    return f"{configured.name} with other cells than its own: {configured_cells}, in place of {default_cells}"


def _refuse_contradictions(record: PolicyAlgorithm, config: PolicyConfig) -> None:
    if "group" in record.needs and record.group_size < 2:
        raise UserError(
            f"group_size {record.group_size}: {record.name} compares the answers to one prompt, and one that "
            "is alone stands above nobody; give 2 or more"
        )
    if "pairs" in record.needs and record.group_size != 2:
        raise UserError(f"group_size {record.group_size}: {record.name} learns from pairs; give 2")
    if record.loss_kl is k1:
        raise UserError(
            "kl_estimator k1 holds nothing in a loss: its expected gradient is 0 (docs/proof.md). "
            "Use k2 or k3, or --divergence reward"
        )
    refuse_process_conflicts(record, config)
    if "adaptive_penalty" in record.needs and record.updates_per_round < 2:
        raise UserError(
            f"{record.name} adapts its coefficient to how far a round has moved the policy, and with a "
            "single move that is 0: give --update-epochs 2 or more"
        )
    if "single_update" in record.needs and record.updates_per_round > 1:
        raise UserError(
            f"{record.updates_per_round} moves a round: {record.name} has no ratio (surrogate log-prob), so "
            "from the second move on it would learn from answers of another policy as if they were its own; "
            "leave --update-epochs and --minibatches out, or add --surrogate unclipped (the ratio) or clip"
        )
    if record.ptx_coef and config.ptx.data is None:
        raise UserError(f"{record.name} needs text that it shall not forget: add --ptx.data FILE")
    _refuse_other_gradients(record, config)
    _refuse_sampling_conflicts(record, config)


def _refuse_other_gradients(record: PolicyAlgorithm, config: PolicyConfig) -> None:
    """Raise where a gradient of something else would be in a natural step, which sees the policy's alone."""
    if not record.max_kl:
        return
    if config.critic.shared:
        raise UserError(
            f"critic.shared: {record.name} moves the policy by its own gradient alone, and a shared critic's "
            "would be in it; leave it out"
        )
    if config.ptx.data is not None:
        raise UserError(
            f"ptx.data: {record.name} moves the policy by its own gradient alone, and that of the text would "
            "be in it; leave it out, or take ppo-ptx"
        )


def _refuse_sampling_conflicts(record: PolicyAlgorithm, config: PolicyConfig) -> None:
    name = record.name
    if config.rollout.weights != "capped" and not (
        record.tis_cap or config.rollout.lag or config.draw.replay
    ):
        raise UserError(
            f"rollout.weights {config.rollout.weights}: nothing is weighed; add --tis-cap 2, or leave it out"
        )
    if record.dynamic_sampling and record.group_size < 2:
        raise UserError(
            f"dynamic_sampling: {name} draws one answer to a prompt, and one is never unlike itself"
        )
    if {"greedy_baseline", "rival"} & record.needs and config.draw.replay:
        compared_with = "the likeliest one" if "greedy_baseline" in record.needs else "a rival's"
        raise UserError(
            f"draw.replay: {name} measures answers against {compared_with} of the same moment, so "
            "those of an earlier round have nothing to be measured against; leave it out"
        )
    if record.max_kl and config.draw.replay:
        raise UserError(
            f"draw.replay: {name} measures its trust region on the policy's own answers, and those of an "
            "earlier round are not; leave it out"
        )
    if record.mixture_coef:
        cells.refuse_unread(record, frozenset({"mixture_coef"}))
        _refuse_mixture_conflicts(record, config)


def _refuse_mixture_conflicts(record: PolicyAlgorithm, config: PolicyConfig) -> None:
    name = record.name
    if config.sampler != "local":
        raise UserError("answers of a mixture with the reference are drawn by --sampler local alone")
    if config.reference.kind == "none":
        raise UserError(
            f"reference.kind none: {name} draws from a mixture of the policy and its reference; leave "
            "it out, or add --mixture-coef 0"
        )
    if config.environment is not None:
        raise UserError(
            f"environment: {name} draws from a mixture of the policy and its reference, and episodes "
            "are played by the policy alone; give --reward in its place, or add --mixture-coef 0"
        )
    if "rival" in record.needs:
        return
    if record.divergence != "none":
        raise UserError(
            f"divergence {record.divergence}: the answers of {name} are those of a mixture, over "
            "which the policy's KL cannot be estimated; leave it out, since the loss holds the policy already"
        )
    if config.draw.replay or record.tis_cap:
        setting = "draw.replay" if config.draw.replay else "tis_cap"
        raise UserError(
            f"{setting} weighs answers as if the policy should have drawn them, and {name} wants those of "
            "a mixture; leave it out"
        )


def update_notes(record: PolicyAlgorithm, config: PolicyConfig) -> tuple[str, ...]:
    """Notes on moves of a round: fewer than were asked for, or one only, at which a clip cannot act."""
    notes: list[str] = []
    wanted = getattr(config, "minibatches", None) or 0
    if wanted > record.minibatches:
        notes.append(
            f"minibatches {wanted}: a round of {config.batch_size} prompts has {record.minibatches}, one "
            "prompt each; --batch-size gives it more prompts"
        )
    limits = sorted(cell_settings(record.surrogate).keys() & {"clip_low", "clip_high", "max_kl"})
    if limits and record.updates_per_round == 1:
        notes.append(
            f"nothing is clipped: a round is one move, at which every ratio is 1, so {' and '.join(limits)} "
            f"cannot act; --minibatches 4 or --update-epochs 2 makes more moves of it"
        )
    return tuple(notes)


def mixture_notes(record: PolicyAlgorithm) -> tuple[str, ...]:
    """Notes on which model generates, where it is not the policy alone."""
    share, source = record.mixture_coef, "the policy itself"
    if share:
        source = f"a mixture of {1 - share:g} of the policy and {share:g} of its reference (log-probs)"
    if "rival" in record.needs:
        rival = "each prompt has a rival's answer, which only scores are compared with"
        return (f"{rival}; it is drawn from {source}",)
    return (f"answers are drawn from {source}",) if share else ()
