"""How fast judges are: a local model by letters beside its scoring of the same tokens, and a server.

python -m benchmarks.judging               both, some minutes on two cores
python -m benchmarks.judging --save        and keeps the table in RESULTS.md
python -m benchmarks.judging --device cuda the model on a GPU
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from benchmarks.table import save_section
from benchmarks.work import SHAPES, Shape, model_of
from plaudit.data.generative_judging import PairwiseRankerSettings
from plaudit.data.judging import Task, outcomes
from plaudit.data.records import plain_text
from plaudit.feedback.judges.cache import ReplyCache
from plaudit.feedback.judges.chat import endpoint_judge
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import LETTERS, HowToAsk
from plaudit.feedback.judges.wording import ShownPair, pair_question, wording_named
from plaudit.feedback.local_judge import LocalChat
from plaudit.files.posting import RetryPolicy
from plaudit.lab.world import making
from plaudit.models.load import load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels, choose_layout
from plaudit.rewards.llm.generative import LanguageJudgeModel, LanguageJudgeSpec
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import make_encoder

TITLE = "Judging"
"""The heading of its table."""
SERVER_PAIRS, SERVER_REQUESTS = 2_000, 16
"""Pairs that the server judges in both orders, and how many requests are under way at once."""
LONGEST = 8_192
"""The longest question, in tokens."""
_COLUMNS = ("shape", "questions", "tokens", "plain, tokens/s", "judge, tokens/s", "share")
_SPECIAL = ("<pad>", "<eos>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast the same tokens are scored plainly and by a judge.

    Example: ``Rates(tokens=90_000, plain=(2.1, 2.0), judged=(2.3, 2.2)).share``
    """

    tokens: int
    """Tokens of all questions, each with both of its replies."""
    plain: tuple[float, ...]
    """Seconds of scoring these tokens, in each run."""
    judged: tuple[float, ...]
    """Seconds of the judge, from pairs to verdicts."""

    @property
    def share(self) -> float:
        """The judge's rate in that of plain scoring, each by its median.

        >>> Rates(tokens=10, plain=(1.0, 9.0, 2.0), judged=(4.0, 2.5, 1.0)).share
        0.8
        """
        return median(self.plain) / median(self.judged)


def tasks_of(count: int) -> list[Task]:
    """Pairs of answers of the embedded world, no two of the same words."""
    found = {(task.prompt, task.answers): task for task in making.answer_tasks(count, answers=2, seed=1)}
    return list(found.values())


def questions_of(tasks: Sequence[Task]) -> list[str]:
    """The question of every pair in both orders."""
    shown = [tuple(map(plain_text, task.answers)) for task in tasks]
    pairs = [
        ShownPair(prompt=task.prompt, first=first, second=second)
        for task, (a, b) in zip(tasks, shown, strict=True)
        for first, second in ((a, b), (b, a))
        if a != b
    ]
    texts = (pair_question(wording_named("letter"), pair).text() for pair in pairs)
    return list(dict.fromkeys(texts))


def write_model(folder: Path, shape: Shape, texts: Sequence[str]) -> None:
    """A model of random weights with a tokenizer of bytes and of what these texts repeat."""
    words = Tokenizer(BPE())
    words.pre_tokenizer = ByteLevel(add_prefix_space=False)
    words.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=min(shape.vocabulary, 2_000),
        special_tokens=[*_SPECIAL],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token=_SPECIAL[0], eos_token=_SPECIAL[1], unk_token=None
    )
    tokenizer.save_pretrained(folder)
    model_of(shape).save_pretrained(folder)


def rates_of(folder: Path, tasks: Sequence[Task], device: str, *, runs: int) -> Rates:
    """Plain scoring and judging in turn, each run with an empty cache of replies."""
    plain, judged = list[float](), list[float]()
    model, examples = _plain_side(folder, tasks, device)
    with tempfile.TemporaryDirectory() as scratch:
        # The first run of each warms up and is not counted.
        for run in range(runs + 1):
            plain.append(_timed(lambda: _score(model, examples), device))
            chat = LocalChat(folder, cache=ReplyCache(folder=Path(scratch) / str(run)), device=device)
            judge = ModelJudge(asker=chat, ask=HowToAsk(how="letter"))
            judged.append(_timed(lambda judge=judge: outcomes(judge, tasks, 0), device))
    tokens = sum(example.tokens for example in examples)
    return Rates(tokens=tokens, plain=tuple(plain[1:]), judged=tuple(judged[1:]))


def server_seconds(pairs: int, requests: int) -> tuple[float, int]:
    """Seconds in which the world's server judges so many pairs in both orders, and how many it was asked."""
    tasks = tasks_of(pairs)
    words = [sys.executable, "-m", "plaudit", "world", "server", "--port", "0"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as scratch,
    ):
        assert server.stdout is not None
        try:
            word = next(line.strip() for line in server.stdout if line.startswith("openai:"))
            policy = RetryPolicy(requests_at_once=requests)
            judge = endpoint_judge(word, ReplyCache(folder=Path(scratch)), policy, ask=HowToAsk(how="letter"))
            begin = time.perf_counter()
            outcomes(judge, tasks, 0)
            seconds = time.perf_counter() - begin
            return seconds, len(list(Path(scratch).rglob("*.json")))
        finally:
            server.terminate()


def _plain_side(folder: Path, tasks: Sequence[Task], device: str) -> tuple[LanguageJudgeModel, list[Example]]:
    target = torch.device(device)
    encoder = make_encoder(folder)
    policy = Policy(load_model(folder, dtype=precision("auto", target).products, device=target))
    policy.use_layout(choose_layout(policy, "packed")[0])
    choose_kernels(policy)
    policy.requires_grad_(False).eval()
    spec = LanguageJudgeSpec(
        settings=PairwiseRankerSettings(first=LETTERS[0], second=LETTERS[1]), max_length=LONGEST
    )
    model = LanguageJudgeModel("plain", policy, encoder, spec)
    replies = [model.form.reply(word) for word in LETTERS]
    return model, [encoder.encode(text, replies) for text in questions_of(tasks)]


def _score(model: LanguageJudgeModel, examples: Sequence[Example]) -> None:
    for micro_batch in model.scorer.micro_batches(examples):
        model.scorer.finite_scores(lambda batch: model.policy.score(batch).logp_NT.sum(-1), micro_batch)


def _timed(call: object, device: str) -> float:
    assert callable(call)
    if device == "cpu":
        # Of the processor: what else the machine does is not in it.
        begin = time.process_time()
        call()
        return time.process_time() - begin
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _table(rows: Sequence[tuple[str, int, Rates]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for shape, questions, rates in rows:
        speeds = [f"{rates.tokens / median(seconds):,.0f}" for seconds in (rates.plain, rates.judged)]
        cells = (shape, f"{questions:,}", f"{rates.tokens:,}", *speeds, f"{rates.share:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """From the command line: python -m benchmarks.judging."""
    parser = argparse.ArgumentParser(description="how fast judges are")
    parser.add_argument("--device", default="cpu", help="of the model: cpu, cuda")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["tiny", "mid", "smol"])
    parser.add_argument("--pairs", type=int, help="of each shape; by default as many as take a while")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server-pairs", type=int, default=SERVER_PAIRS, help="0: no server")
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    given = parser.parse_args()
    rows: list[tuple[str, int, Rates]] = []
    for shape in given.shapes:
        tasks = tasks_of(given.pairs or {"tiny": 400, "mid": 100, "smol": 4}[shape])
        texts = questions_of(tasks)
        with tempfile.TemporaryDirectory() as scratch:
            write_model(Path(scratch), SHAPES[shape], texts)
            rates = rates_of(Path(scratch), tasks, given.device, runs=given.runs)
        rows.append((shape, len(texts), rates))
        print(_table(rows[-1:]).splitlines()[-1], flush=True)
    clock = "CPU seconds" if given.device == "cpu" else "seconds"
    text = f"{given.device}, {torch.get_num_threads()} threads, by {clock}.\n\n{_table(rows)}"
    if given.server_pairs:
        seconds, replies = server_seconds(given.server_pairs, SERVER_REQUESTS)
        text += (
            f"\n\n{given.server_pairs:,} pairs by the world's server in both orders, {SERVER_REQUESTS} "
            f"requests at once: {seconds:.1f} s, {replies:,} replies, {replies / seconds:,.0f} a second."
        )
    print(text)
    if given.save:
        save_section(TITLE, text)


if __name__ == "__main__":
    main()
