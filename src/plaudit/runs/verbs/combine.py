"""``plaudit combine``: one reward of several, of two policies, or of a model that scores steps."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from plaudit.cli.parser import Subparsers, model_path
from plaudit.errors import UserError

AGGREGATIONS = ("mean", "min", "cautious", "weighted", "gated")
STEP_REDUCTIONS = ("product", "min", "last")
_AGGREGATIONS_HELP = """\
mean      1/M sum of r
min       the sternest reward decides (Coste et al. 2023)
cautious  mean - k standard deviations: what they disagree on counts for less
weighted  sum of w r
gated     the gate's own score where that is below a threshold, the other reward elsewhere (Llama 2)"""


def add_parser(subparsers: Subparsers) -> None:
    combine = subparsers.add_parser("combine")
    verbs = combine.add_subparsers(dest="combine_verb", required=True, metavar="rewards|implicit|steps|group")
    _add_rewards_verb(verbs)
    implicit = verbs.add_parser(
        "implicit", help="the reward that a policy has learned: beta (log pi - log pi_ref), or beta log pi"
    )
    add = implicit.add_argument
    add("--policy", type=model_path, required=True, metavar="DIR", help="the trained policy")
    reference_help = "what it began as (default: none, likelihood alone)"
    add("--reference", type=model_path, metavar="DIR", help=reference_help)
    add("--beta", type=float, default=0.1, metavar="B", help="that of its training (default: 0.1)")
    steps = verbs.add_parser("steps", help="whole answers scored by a model that scores their steps")
    add = steps.add_argument
    add("model", type=model_path, metavar="DIR", help="a reward model that learned from steps")
    add(
        "--reading",
        choices=STEP_REDUCTIONS,
        default="product",
        help="chance that all steps are right, of the weakest one, or of the last one (default: product)",
    )
    group = verbs.add_parser("group", help="the taste of a group, told by a few of its comparisons")
    add = group.add_argument
    add("module", type=Path, metavar="RUN", help="what plaudit train group made")
    add("--model", type=model_path, required=True, metavar="DIR", help="the model of that run")
    add("--context", type=Path, required=True, metavar="FILE", help="comparisons of the group")
    add("--group", metavar="NAME", help="only those of this group (default: all of them)")
    for verb in (implicit, steps, group):
        _add_out_option(verb)
    combine.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    verbs: Mapping[str, Callable[[argparse.Namespace], str]] = {
        "rewards": _combine_rewards,
        "implicit": _combine_implicit,
        "steps": _combine_steps,
        "group": _combine_group,
    }
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out}: something is there already; name a new folder")
    sentence = verbs[args.combine_verb](args)
    print(f"{args.out}: {sentence}")
    return 0


def _add_rewards_verb(verbs: Subparsers) -> None:
    rewards = verbs.add_parser(
        "rewards",
        help="an ensemble, or several objectives",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_AGGREGATIONS_HELP,
    )
    add = rewards.add_argument
    add("rewards", type=model_path, nargs="+", metavar="DIR", help="folders of rewards")
    add("--how", choices=AGGREGATIONS, default="mean", help="see below (default: mean)")
    add("--weights", type=float, nargs="+", metavar="W", help="weighted: one for each, in their order")
    add("--k", type=float, help="cautious: how many deviations (default: 1)")
    add("--gate", type=model_path, metavar="DIR", help="gated: which of the two decides")
    add("--below", type=float, metavar="R", help="gated: the threshold, on the gate's scale (default: 0)")
    normalise_help = "rows on whose answers each reward is brought to mean 0 and deviation 1 first"
    add("--normalise", type=Path, metavar="FILE", help=normalise_help)
    add("--device", default="auto", help="for --normalise: auto, cpu or cuda (default: auto)")
    _add_out_option(rewards)


def _add_out_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for the reward")


def _combine_rewards(args: argparse.Namespace) -> str:
    from plaudit.rewards.combine.aggregate import Combination
    from plaudit.rewards.combine.manifest import save_combination
    from plaudit.rewards.load import check_reward, fit_reward_normalisations

    combination = Combination(
        how=args.how,
        weights=None if args.weights is None else tuple(args.weights),
        k=1.0 if args.how == "cautious" and args.k is None else args.k,
        gate=None if args.gate is None else _gate_index(args.gate, args.rewards),
        below=0.0 if args.how == "gated" and args.below is None else args.below,
    )
    combination.refuse_members(len(args.rewards))
    for folder in args.rewards:
        check_reward(folder)
    if args.normalise is not None:
        normal = fit_reward_normalisations(args.rewards, args.normalise, device=args.device)
        combination = replace(combination, normal=normal)
    save_combination(args.out, args.rewards, combination)
    return f"{args.how} of {', '.join(map(str, args.rewards))}"


def _gate_index(gate: Path, rewards: Sequence[Path]) -> int:
    indices = [index for index, reward in enumerate(rewards) if reward.resolve() == gate.resolve()]
    if not indices:
        raise UserError(f"--gate {gate}: is none of the rewards; it is {' or '.join(map(str, rewards))}")
    return indices[0]


def _combine_implicit(args: argparse.Namespace) -> str:
    from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
    from plaudit.rewards.load import check_implicit

    policies = ImplicitManifest(policy=args.policy, reference=args.reference, beta=args.beta)
    check_implicit(policies)
    save_manifest(args.out, policies)
    return policies.describe()


def _combine_steps(args: argparse.Namespace) -> str:
    from plaudit.rewards.combine.manifest import COMBINED_FILE, ProcessManifest, save_manifest
    from plaudit.rewards.load import check_reward

    if (args.model / COMBINED_FILE).is_file():
        raise UserError(f"{args.model}: a combination has no steps; give a reward model's folder")
    check_reward(args.model)
    save_manifest(args.out, ProcessManifest(model=args.model, reading=args.reading))
    return f"{args.reading} of the steps that {args.model} scores"


def _combine_group(args: argparse.Namespace) -> str:
    from plaudit.rewards.combine.manifest import GroupManifest, save_manifest
    from plaudit.rewards.load import check_group

    taste = GroupManifest(module=args.module, embedder=args.model, context=args.context, group=args.group)
    comparisons = check_group(taste)
    save_manifest(args.out, taste)
    return f"the taste that {len(comparisons)} comparisons tell of"
