"""The oracle of the policy trainer: what is known before a move and what the move loses, answer by answer."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.methods.policy.papers import Known, Now, Paper
from tests.methods.policy.pieces import BONUS, PTX
from tests.methods.policy.script import LONGEST, Script, plain_scores


def before(
    lines: Script, policy: PreTrainedModel, reference: PreTrainedModel, critic: PreTrainedModel, paper: Paper
) -> list[Known]:
    """All answers that have a verdict, and what each was worth."""
    every: list[Known] = []
    for group, (prompt, said) in enumerate(lines):
        for line in said[:-1]:
            if line.score is None:
                continue
            late = (
                max(0, len(line.ids) - (LONGEST - paper.overlong)) / paper.overlong if paper.overlong else 0.0
            )
            place = torch.tensor(line.ids)[:, None]
            with torch.no_grad():
                every_old, every_ref = (
                    plain_scores(model, prompt, line.ids) for model in (policy, reference)
                )
                old, ref = (scores.gather(-1, place)[:, 0].tolist() for scores in (every_old, every_ref))
                value = plain_values(critic, prompt, line.ids).tolist()
            greedy = said[-1].score
            every.append(
                Known(
                    group=group,
                    prompt=prompt,
                    line=line,
                    score=line.score - late,
                    old=old,
                    every_old=every_old.tolist(),
                    ref=ref,
                    value=value if paper.critic else [0.0] * len(old),
                    greedy=0.0 if greedy is None else greedy,
                    advantage=[],
                )
            )
    return every


def plain_values(critic: PreTrainedModel, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
    """V in the state in which each token was said."""
    own: Any = critic
    hidden = own.model(input_ids=torch.tensor([[*prompt, *ids]])).last_hidden_state[0]
    return (hidden @ own.score.weight[0])[len(prompt) - 1 : -1]


def weigh(every: Sequence[Known], paper: Paper) -> list[list[float]]:
    """Fill in the advantages; the critic's targets come back, made of those before whitening."""
    for one in every:
        one.advantage = paper.advantage(one, every, paper)
    targets = [[a + v for a, v in zip(one.advantage, one.value, strict=True)] for one in every]
    if paper.whiten:
        whole = [a for one in every for a in one.advantage]
        centre = fmean(whole)
        width = math.sqrt(fmean((a - centre) ** 2 for a in whole) + 1e-8)
        for one in every:
            one.advantage = [(a - centre) / width for a in one.advantage]
    return targets


def loss_of(
    paper: Paper,
    every: Sequence[Known],
    targets: Sequence[Sequence[float]],
    groups: Sequence[int],
    models: tuple[PreTrainedModel, PreTrainedModel],
) -> Tensor:
    policy, critic = models
    here = [(one, target) for one, target in zip(every, targets, strict=True) if one.group in groups]
    tokens = sum(len(one.old) for one, _ in here)
    nows = [look(one, policy, critic) for one, _ in here]
    whole = torch.zeros((), dtype=torch.float64)
    for now, (one, target) in zip(nows, here, strict=True):
        mates = [other for other in nows if other.known.group == one.group and other is not now]
        loss_T = paper.loss(now, mates[0] if len(mates) == 1 else None) - BONUS * now.entropy_T
        if paper.kl == "loss":
            loss_T = loss_T + paper.beta * paper.loss_kl(
                now.logp_T - torch.tensor(one.ref, dtype=torch.float64)
            )
        if paper.drop_cut and not one.line.ended:
            loss_T = 0.0 * loss_T
        share = {"tokens": tokens, "answers": len(here) * len(one.old), "fixed": len(here) * LONGEST}[
            paper.over
        ]
        whole = whole + loss_T.sum() / share
        if paper.critic:
            whole = whole + 0.1 * value_loss(now, target) / tokens
    return whole


def look(one: Known, policy: PreTrainedModel, critic: PreTrainedModel) -> Now:
    scores_TV = plain_scores(policy, one.prompt, one.line.ids)
    return Now(
        logp_T=scores_TV.gather(-1, torch.tensor(one.line.ids)[:, None])[:, 0],
        entropy_T=-(scores_TV.exp() * scores_TV).sum(-1),
        every=scores_TV.detach().tolist(),
        value_T=plain_values(critic, one.prompt, one.line.ids),
        known=one,
    )


def value_loss(now: Now, target: Sequence[float]) -> Tensor:
    """½ max((V − R)², (clip(V, V_old ± 0.2) − R)²), summed."""
    found = torch.zeros((), dtype=torch.float64)
    for v, old, want in zip(now.value_T, now.known.value, target, strict=True):
        held = old + (v - old).clamp(-0.2, 0.2)
        found = found + 0.5 * torch.maximum((v - want) ** 2, (held - want) ** 2)
    return found


def ptx_loss(policy: PreTrainedModel) -> Tensor:
    """−log π a token of the text; a word is a token, and token 2 ends a text."""
    logps = []
    for prompt, answer in PTX:
        own, ids = ([int(word[1:]) for word in text.split()] for text in (prompt, answer))
        ids.append(2)
        logits = policy(input_ids=torch.tensor([[*own, *ids]])).logits[0, len(own) - 1 : -1]
        logps.append(logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]))
    return -torch.cat(logps).mean()
