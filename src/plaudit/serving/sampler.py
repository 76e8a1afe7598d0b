"""A sampler that asks servers: it sends them the weights, has them prove it, and draws a run's answers."""

import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from itertools import chain, groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from torch import Tensor

from plaudit.engine.distributed import Ranks
from plaudit.engine.sinks.files import SYNCS_FILE
from plaudit.engine.step_report import Number
from plaudit.errors import UserError
from plaudit.files.posting import parse_url
from plaudit.methods.policy.config import ServerSettings
from plaudit.methods.run import Run
from plaudit.models.policy import Policy
from plaudit.rollouts.sampler import (
    GenerationPrompt,
    GenerationRequest,
    Rollout,
    SamplingSettings,
    WeightsVersion,
    decoded_rollout,
    generation_requests,
)
from plaudit.serving.fleet import Fleet, Keeper
from plaudit.serving.journal import Journal
from plaudit.serving.processes import VllmServers
from plaudit.serving.proof import disturbed, policy_logps, probes
from plaudit.serving.server import Question, Server
from plaudit.serving.weights import Handover, adapter_tensors, served_tensors
from plaudit.tokens.encode import Encoder

DrawnT = TypeVar("DrawnT")
MEMORY = Path("/dev/shm")
JOURNAL_FOLDER = "drawn"
"""The folder of a run folder with what servers have answered since the last checkpoints."""


@dataclass(slots=True, kw_only=True)
class RemoteSampler:
    """Draws answers from servers with the weights of a policy, which may be divided over ranks."""

    policy: Policy
    encoder: Encoder
    weights: WeightsVersion
    ranks: Ranks
    """The ranks in a group of their own: what is drawn in the background speaks in it."""
    fleet: Fleet
    keeper: Keeper | None
    """What brings weights to the servers; on the first rank alone."""
    run: str
    """A name of this process group's own: another run's weights are never taken for its own."""
    dtype: torch.dtype
    note: Callable[[str], None]
    adapters: bool = False
    """Whether adapters are sent alone."""
    _sent: int = field(default=-1, init=False)
    """The weights that the servers have."""
    _ready: int = field(default=-1, init=False)
    """The newest ones that are on their way to them."""
    _background: ThreadPoolExecutor = field(init=False)
    _under_way: list[Future[Any]] = field(default_factory=list[Future[Any]], init=False)

    def __post_init__(self) -> None:
        self._background = ThreadPoolExecutor(1, initializer=_compute_on, initargs=(self.ranks.device,))

    @property
    def version(self) -> int:
        return self.weights.number

    @property
    def max_positions(self) -> int | None:
        return getattr(self.policy.base.config.get_text_config(), "max_position_embeddings", None)

    def refresh(self) -> None:
        """Send the weights, where they have moved since, and have each server prove that it uses them."""
        # What is under way is drawn with the weights that the servers have.
        wait(self._under_way)
        self._lay_ready()()

    def later(self, draw: Callable[[], DrawnT]) -> Future[DrawnT]:
        """What ``draw`` draws with the weights of now, while the caller goes on and moves them."""
        send = self._lay_ready()

        def send_and_draw() -> DrawnT:
            send()
            return draw()

        future = self._background.submit(send_and_draw)
        self._under_way = [*(each for each in self._under_way if not each.done()), future]
        return future

    def close(self) -> None:
        """Begin nothing more; of what is under way nothing is wanted."""
        self._background.shutdown(wait=False, cancel_futures=True)
        if any(not future.done() for future in self._under_way):
            self.fleet.fail(UserError("the run has ended"))

    def forget(self) -> None:
        """Of what was drawn nothing is wanted again: it is kept elsewhere."""
        if self.fleet.journal is not None:
            self.fleet.journal.remove()

    def _lay_ready(self) -> Callable[[], None]:
        # Gather the weights on all ranks; what comes back sends them, and asks no model for anything.
        if self._ready == self.version:
            return lambda: None
        first = self._ready < 0
        sequences = probes(self.policy.base.config.get_text_config().vocab_size, self.max_positions)
        name = f"{self.run}-{self.version}"
        if first:
            self._prove_every_tensor(sequences)
        here_M = policy_logps(self.policy, sequences)
        tensors = self._tensors()
        self._ready = self.version
        return partial(self._send, self.version, name, tensors, here_M)

    def _tensors(self) -> dict[str, Tensor]:
        read = adapter_tensors if self.adapters else served_tensors
        return read(self.policy, self.dtype, keep=self.keeper is not None)

    def _send(self, version: int, name: str, tensors: Mapping[str, Tensor], here_M: Tensor) -> None:
        roots: list[str] = []
        if self.keeper is not None:
            roots.append(self.keeper.send(tensors, name, here_M))
        # None draws before the servers have them; and who failed tells the others.
        [self.fleet.root] = self.ranks.all_gather_strings(roots)
        self._sent, self.fleet.version = version, name
        if self.fleet.journal is not None:
            self.fleet.journal.begin(self.fleet.root)
        self.fleet.update()

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Nothing changes with a step."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Nothing: what was drawn stands in the journal, which forgets what no checkpoint needs any more."""
        if self.fleet.journal is not None:
            self.fleet.journal.checkpoint()
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        del tensors

    def _prove_every_tensor(self, sequences: Sequence[tuple[int, ...]]) -> None:
        # Lay weights ready by which a server shows that it computes with each tensor.
        with disturbed(self.policy, sequences, self.dtype, adapters=self.adapters) as noise:
            tensors = self._tensors()
            if self.keeper is not None:
                self.keeper.sequences, self.keeper.stop_ids = sequences, tuple(self.encoder.stop_ids)
                self.keeper.noise = (
                    self.keeper.handover.write(tensors, f"{self.run}-noise", aside=True),
                    noise,
                )
        if noise.unseen:
            self.note(
                f"{len(noise.unseen)} tensors cannot be proven to reach the servers, since fixed tokens do "
                f"not show them ({noise.unseen[0]} first)"
            )

    def requests_for(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        """The requests that `generate` serves: ``n`` for each prompt, with the room that the model has."""
        return generation_requests(prompts, settings, n, self.max_positions)

    def generate(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that the servers drew."""
        return list(self.generate_each(prompts, settings, n=n))

    def generate_each(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> Generator[list[Rollout]]:
        """The answers to each prompt, in order, once they and those before them are there."""
        in_order = self._draw(self.requests_for(prompts, settings, n), settings)
        return (list(islice(in_order, n)) for _ in prompts)

    def generate_requests(
        self, requests: Sequence[GenerationRequest], settings: SamplingSettings
    ) -> list[Rollout]:
        """A rollout for each request, in their order; those of one prompt in a row are one question."""
        return list(self._draw(requests, settings))

    def _draw(self, requests: Sequence[GenerationRequest], settings: SamplingSettings) -> Iterator[Rollout]:
        # Without chance all answers are one, and vLLM refuses to give it twice.
        numbered = list(enumerate(requests)) if settings.greedy else enumerate_runs(requests)
        groups = [list(group) for _, group in groupby(numbered, key=lambda pair: pair[0])]
        questions = [self._question([request for _, request in group], settings) for group in groups]
        drawn = chain.from_iterable(self.fleet.draw(questions))
        for request, tokens in zip(requests, drawn, strict=True):
            yield decoded_rollout(
                self.encoder,
                settings,
                prompt=request.prompt,
                ids=tokens.ids,
                logp=tokens.logp,
                ended=tokens.ended,
                version=self._sent,
            )

    def _question(self, requests: Sequence[GenerationRequest], settings: SamplingSettings) -> Question:
        first = requests[0]
        if first.extras:
            raise UserError(
                "a prompt shows pictures, and servers take these beside tokens only as their own release "
                "packs them (docs/scale.md): draw by --sampler local"
            )
        digest = blake2b(f"{settings.seed}/{first.prompt}".encode(), digest_size=6)
        return Question(
            prompt=first.prompt,
            answers=len(requests),
            seed=int.from_bytes(digest.digest()) + first.sample,
            max_tokens=first.max_new_tokens,
            temperature=float(settings.temperature),
            top_k=settings.top_k,
            top_p=float(settings.top_p),
            min_p=float(settings.min_p),
            stop_ids=tuple(self.encoder.stop_ids),
            stop=settings.stop,
        )


def _compute_on(device: torch.device) -> None:
    # Have what this thread computes, such as scores by a model, computed where the others compute.
    if device.type == "cuda":
        torch.cuda.set_device(device)


def enumerate_runs(requests: Sequence[GenerationRequest]) -> list[tuple[int, GenerationRequest]]:
    """The requests with the number of their question: those that follow each other in one prompt share it."""
    numbered: list[tuple[int, GenerationRequest]] = []
    number = -1
    for place, request in enumerate(requests):
        before = requests[place - 1] if place else None
        follows = before is not None and (
            (request.prompt, request.max_new_tokens, request.sample)
            == (before.prompt, before.max_new_tokens, before.sample + 1)
        )
        number += not follows
        numbered.append((number, request))
    return numbered


def _journal(run: Run) -> Journal | None:
    # What this rank's answers are kept in; nothing where nothing is written, as by a check.
    if not run.ranks.first_says(run.folder is not None):
        return None
    journal = Journal(run.config.out / JOURNAL_FOLDER, run.ranks.rank)
    run.resources.callback(journal.close)
    return journal


def _keeper(
    run: Run,
    fleet: Fleet,
    handover: Handover,
    dtype: torch.dtype,
    temperature: float,
    started: VllmServers | None,
) -> Keeper:
    run.resources.callback(handover.remove)
    restart = None if started is None else started.restart
    log = None if run.folder is None else run.folder / SYNCS_FILE
    keeper = Keeper(fleet, handover, dtype, temperature=temperature, restart=restart, log=log)
    run.resources.callback(keeper.close)
    return keeper


def remote_sampler(
    run: Run,
    word: str,
    settings: ServerSettings,
    policy: Policy,
    weights: WeightsVersion,
    *,
    temperature: float,
) -> RemoteSampler:
    """What draws a run's answers by servers; every rank comes, and the first one sends the weights."""
    dtype, place = run.precision.products, _place(run)
    adapter = _adapter_settings(policy) if settings.adapters else None
    started, urls = _servers(run, place, word, settings, dtype, 0 if adapter is None else adapter.r)
    reach = partial(Server, seconds=settings.seconds, token_from=settings.token_from)
    servers = [reach(url, adapters=settings.adapters) for url in urls]
    if started is not None:
        started.wait(servers)
    fleet = Fleet(servers, patience=settings.seconds, journal=_journal(run))
    run.news.append(fleet.news)
    keeper = None
    if run.ranks.is_first:
        folder = _folder(run, place, urls, settings)
        keeper = _keeper(run, fleet, Handover(folder, adapter), dtype, temperature, started)
    [name] = run.ranks.all_gather_strings([uuid.uuid4().hex[:8]] * run.ranks.is_first)
    sampler = RemoteSampler(
        policy=policy,
        encoder=run.encoder,
        weights=weights,
        ranks=run.ranks.with_separate_group(),
        fleet=fleet,
        keeper=keeper,
        run=name,
        dtype=dtype,
        note=run.note,
        adapters=settings.adapters,
    )
    run.resources.callback(sampler.close)
    sampler.refresh()
    if keeper is not None:
        run.note(keeper.first_note())
    return sampler


def _adapter_settings(policy: Policy) -> Any:
    # PEFT's settings of the adapters that a policy has.
    settings = getattr(policy.model, "peft_config", None)
    if settings is None:
        raise UserError(
            "server.adapters sends adapters, and this policy has none: add --lora.rank 16, or leave it out"
        )
    return settings["default"]


def _place(run: Run) -> Path:
    # The run folder; where none is written, as by a check, one that is gone afterwards.
    if run.folder is not None or not run.ranks.is_first:
        return run.config.out.resolve()
    return Path(run.resources.enter_context(TemporaryDirectory(prefix="plaudit-")))


def _servers(
    run: Run, place: Path, word: str, settings: ServerSettings, dtype: torch.dtype, rank: int
) -> tuple[VllmServers | None, list[str]]:
    # The addresses that a word names; of ``vllm`` those of servers that the first rank starts, and these.
    if word != "vllm":
        urls = [url for url in word.split(",") if url]
        _refuse_open_servers(urls, settings)
        return None, urls
    if not run.ranks.is_first:
        return None, run.ranks.all_gather_strings([])
    started = VllmServers(run.config.model, place / "servers", settings, dtype, rank=rank)
    run.resources.callback(started.close)
    return started, run.ranks.all_gather_strings(started.urls)


def _refuse_open_servers(urls: list[str], settings: ServerSettings) -> None:
    if len(set(urls)) < len(urls):
        raise UserError(f"--sampler names a server twice: {', '.join(urls)}")
    open_to_others = [url for url in urls if not _is_here(url)]
    if open_to_others and settings.token_from is None:
        raise UserError(
            f"{open_to_others[0]} is on another machine, and whoever reaches it could give it other weights: "
            "let it want a token, and name the variable that holds it (--server.token-from)"
        )


def _is_here(url: str) -> bool:
    host = parse_url(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _folder(run: Run, place: Path, urls: list[str], settings: ServerSettings) -> Path:
    # By the run folder's name: what a killed process left there is found, and removed.
    name = f"plaudit-{blake2b(str(run.config.out.resolve()).encode(), digest_size=6).hexdigest()}"
    if settings.folder is not None:
        return settings.folder.resolve() / name
    return MEMORY / name if all(map(_is_here, urls)) and MEMORY.is_dir() else place / "weights"
