"""Several sampling servers as one: who is asked, and what brings each of them its weights, proven.

The least busy one is asked, and what it cannot answer another one does; a server that comes back later is
brought what the others have.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import sub
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from plaudit.errors import UserError
from plaudit.serving.journal import Journal, key_of
from plaudit.serving.proof import Disturbed, Proof, Verdict, max_gap
from plaudit.serving.server import UNPROVEN, DrawnTokens, GoneError, Question, Server, UselessReplyError
from plaudit.serving.weights import Delivery, Handover, refuse_other_model

QUESTIONS_AT_ONCE = 64
"""How many questions a process has under way at each server."""
TRIES = 5
"""How often a question is asked again after useless replies; then the run ends, for they do not pass."""
LOOK_SECONDS = 1.0
"""How often servers that are gone are looked at again."""
CLOSING_SECONDS = 20.0
"""How long the end of a run waits for a server that is just being sent weights."""


class Fleet:
    """Servers that hold the same weights.
    Example: ``Fleet([Server(url) for url in urls]).draw(questions)``."""

    def __init__(
        self, servers: Sequence[Server], *, patience: float = 600.0, journal: Journal | None = None
    ) -> None:
        """``patience``: seconds that a question waits while no server is there at all."""
        self.servers = tuple(servers)
        self.journal = journal
        self.root = ""
        """What the weights of now are known by, in any process."""
        self.version = ""
        """The name of the weights that answers have to be drawn with."""
        self.fault: UserError | None = None
        """What keeps the weights from the servers for good, where something does."""
        self.useless: Counter[str] = Counter()
        """Replies that were not learnt from, by what was wrong with them."""
        self._news: list[str] = []
        self._reported: Counter[str] = Counter()
        self._patience = patience
        self._busy = dict.fromkeys(self.servers, 0)
        self._gone: dict[Server, str] = {}
        self._change = threading.Condition()

    def news(self) -> list[str]:
        """What has happened since this was called last, for the user."""
        with self._change:
            news, self._news = self._news, []
            if self.journal is not None and (reused := self.journal.reused):
                self.journal.reused = 0
                news.append(f"{reused} questions were answered before the run was stopped: not asked again")
            if new := self.useless - self._reported:
                self._reported = self.useless.copy()
                counts = ", ".join(f"{count} {reason}" for reason, count in new.items())
                news.append(f"replies of servers that were not learnt from, but asked for again: {counts}")
        return news

    def gone(self) -> list[Server]:
        with self._change:
            return list(self._gone)

    def reasons(self) -> str:
        """Why those that are gone are gone."""
        with self._change:
            return "; ".join(dict.fromkeys(self._gone.values()))

    def lose(self, server: Server, reason: str) -> None:
        """Ask this one no more until it is back."""
        with self._change:
            if server not in self._gone:
                left = len(self.servers) - len(self._gone) - 1
                self._news.append(f"a server is gone, {left} left: {reason}")
            self._gone[server] = reason
            self._change.notify_all()

    def welcome(self, server: Server) -> None:
        """Ask it again: it is known to hold the weights of this version."""
        with self._change:
            if self._gone.pop(server, None) is not None:
                self._news.append(f"a server is back: {server.url}")
            self._change.notify_all()

    def update(self) -> None:
        """See which servers are there and hold the weights of this version; the others are gone."""
        for server in self.servers:
            try:
                version = server.version()
            except (GoneError, UselessReplyError) as error:
                self.lose(server, str(error))
                continue
            if version == self.version:
                self.welcome(server)
            else:
                self.lose(server, f"{server.url} has other weights ({version})")

    def fail(self, fault: UserError) -> None:
        """End every wait: no server will be given the weights any more."""
        with self._change:
            self.fault = fault
            self._change.notify_all()

    def draw(self, questions: Sequence[Question]) -> Iterator[list[DrawnTokens]]:
        """The answers to each question in order, once they are there; a fault ends what has not begun."""
        if not questions:
            return
        with ThreadPoolExecutor(min(len(questions), QUESTIONS_AT_ONCE * len(self.servers))) as pool:
            futures = [pool.submit(self._answer, question) for question in questions]
            try:
                for future in futures:
                    yield future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                if self.journal is not None:
                    self.journal.sync()

    def _answer(self, question: Question) -> list[DrawnTokens]:
        # By the journal, where it was answered before; else by a server, and kept there.
        if self.journal is None:
            return self._ask(question)
        key = key_of(self.root, question)
        with self._change:
            answers = self.journal.answers_to(key)
        if answers is None:
            answers = self._ask(question)
            with self._change:
                self.journal.write(key, answers)
        return answers

    def _ask(self, question: Question) -> list[DrawnTokens]:
        tries = losses = 0
        begin = time.monotonic()
        while True:
            server = self._least_busy()
            try:
                return server.draw(question, self.version)
            except GoneError as error:
                self.lose(server, str(error))
                losses += 1
                # Of servers that look well to whoever does not ask them this.
                if losses >= TRIES and time.monotonic() - begin > self._patience:
                    raise UserError(
                        f"servers that look well lost a question {losses} times: {error}"
                    ) from error
            except UselessReplyError as error:
                tries += 1
                with self._change:
                    self.useless[str(error)] += 1
                if tries == TRIES:
                    raise UserError(
                        f"{server.url}: {TRIES} replies in a row that cannot be learnt from, the last one: "
                        f"{error}. Does another run send weights to this server, or has it too little room "
                        "(--max-model-len)?"
                    ) from error
            finally:
                with self._change:
                    self._busy[server] -= 1

    def _least_busy(self) -> Server:
        deadline = time.monotonic() + self._patience
        while True:
            with self._change:
                if self.fault is not None:
                    raise self.fault
                there = [server for server in self.servers if server not in self._gone]
                if there:
                    server = min(there, key=self._busy.__getitem__)
                    self._busy[server] += 1
                    return server
                self._change.wait(LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise UserError(
                    f"no sampling server is left ({self.reasons()}); start one, and the run again"
                )
            # Whoever brings them the weights does so in another process, perhaps.
            self.update()


class Keeper:
    """Sends every server of a fleet its weights; a thread looks after those that are gone."""

    def __init__(
        self,
        fleet: Fleet,
        handover: Handover,
        dtype: torch.dtype,
        *,
        temperature: float = 1.0,
        restart: Callable[[Server], None] | None = None,
        log: Path | None = None,
    ) -> None:
        """``temperature`` is the run's; ``restart`` starts a server again, where the run does that."""
        self.sequences: Sequence[tuple[int, ...]] = ()
        self.noise: tuple[Delivery, Disturbed] | None = None
        """What a server that is new is sent first."""
        self.stop_ids: tuple[int, ...] = ()
        self.syncs: list[Mapping[str, Any]] = []
        """What each delivery took, and came to; also a line each of the file."""
        self._fleet, self._dtype, self._restart = fleet, dtype, restart
        self.handover = handover
        self._temperature, self._log = temperature, log
        self._current: tuple[Delivery, Tensor] | None = None
        self._proofs: dict[Server, Proof] = {}
        self._holds: dict[Server, tuple[Path, str]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def send(self, tensors: Mapping[str, Tensor], version: str, here_M: Tensor) -> str:
        """Bring these weights to all servers that are there; at least one has to take the first ones."""
        begin = time.perf_counter()
        # Within: files of before are removed, which a server that is just coming back may be reading.
        with self._lock:
            delivery = self.handover.write(tensors, version)
            self._current = delivery, here_M
            self._fleet.version = delivery.version
            with ThreadPoolExecutor(len(self._fleet.servers)) as pool:
                verdicts = list(pool.map(self._bring_or_lose, self._fleet.servers))
        proven = [verdict for verdict in verdicts if verdict is not None]
        # Later the run waits until one is back, as it does while it asks.
        if not proven and not self.syncs:
            raise UserError(f"no sampling server took the weights: {self._fleet.reasons()}")
        sync = {
            "version": delivery.version,
            "seconds": time.perf_counter() - begin,
            "bytes": delivery.bytes_written,
            "gap": max((verdict.gap for verdict in proven), default=0.0),
            "distinguished": sum(verdict.distinguished for verdict in proven),
            "servers": len(proven),
        }
        self.syncs.append(sync)
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(sync) + "\n")
        if self._fleet.fault is not None:
            raise self._fleet.fault
        if not self._thread.is_alive():
            self._thread.start()
        return delivery.files[-1][1]

    def first_note(self) -> str:
        """What the first delivery came to, for the user."""
        first, count = self.syncs[0], len(self._fleet.servers)
        return (
            f"answers are drawn by {count} server{'s' * (count > 1)}; {first['bytes'] / 2**20:,.0f} MiB of "
            f"weights went by {self.handover.folder} in {first['seconds']:.2g} s; with every tensor "
            f"disturbed, and as they are, they answer as the policy does (within {first['gap']:.1g} nats a "
            "token)"
        )

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            # The next one to send these servers weights shall be alone with them.
            self._thread.join(CLOSING_SECONDS)

    def _bring_or_lose(self, server: Server) -> Verdict | None:
        try:
            verdict = self._bring(server)
        except (GoneError, UselessReplyError) as error:
            self._proofs.pop(server, None)
            self._holds.pop(server, None)
            self._fleet.lose(server, str(error))
            return None
        self._fleet.welcome(server)
        return verdict

    def _bring(self, server: Server) -> Verdict:
        # Bring a server to the weights of now, and have it prove them.
        assert self._current is not None
        delivery, here_M = self._current
        is_new = server not in self._proofs
        if is_new:
            self._begin(server, delivery)
        held = self._holds.get(server)
        updates = delivery.updates
        if held is not None and held in delivery.files:
            updates = updates[delivery.files.index(held) + 1 :]
        # By their name every rank knows that it may ask: so they get it once they are proven.
        server.take(updates, f"{delivery.version}{UNPROVEN}")
        self._holds[server] = delivery.files[-1]
        verdict = self._proofs[server].compare(server.url, self._logps_of(server), here_M)
        server.name_weights(delivery.version)
        if (version := server.version()) != delivery.version:
            raise GoneError(f"{server.url} has the weights {version} and was sent {delivery.version}")
        # With the true weights: in 16 bits rounding shows in disturbed ones.
        if is_new and self._temperature == 1:
            self._refuse_other_logps(server, delivery.version)
        return verdict

    def _begin(self, server: Server, delivery: Delivery) -> None:
        # Meet a server that is new: its model, and with disturbed weights that each tensor reaches it.
        _refuse_another_model(server, delivery)
        server.begin_transfer()
        if self.noise is not None:
            noisy, noise = self.noise
            server.take(noisy.updates, noisy.version)
            noise.compare(server.url, self._logps_of(server))
            if self._temperature != 1:
                self._refuse_other_logps(server, noisy.version)
        self._proofs[server] = Proof(self._dtype)

    def _refuse_other_logps(self, server: Server, version: str) -> None:
        # Refuse log-probs of answers that are not those at the run's temperature.
        prompt = self.sequences[0][:8]
        question = Question(
            prompt=prompt,
            answers=1,
            seed=0,
            max_tokens=16,
            temperature=self._temperature,
            stop_ids=self.stop_ids,
        )
        [drawn] = server.draw(question, version)
        # Of a prompt they are told without a temperature.
        plain = server.prompt_logps((*prompt, *drawn.ids))[len(prompt) - 1 :]
        gap = sum(map(abs, map(sub, drawn.logp, plain))) / len(plain)
        if self._temperature == 1 and not gap <= max_gap(self._dtype):
            raise UserError(
                f"{server.url} draws answers with other log-probs than it has for the same tokens as a "
                f"prompt: {gap:.2g} nats apart; its cache, or its settings for drawing, are not those of a "
                "plain model"
            )
        if self._temperature != 1 and gap == 0:
            raise UserError(
                f"{server.url} tells log-probs without the temperature ({self._temperature:g}) that "
                "answers are drawn at: start it with --logprobs-mode processed_logprobs, or draw at 1"
            )

    def _logps_of(self, server: Server) -> Tensor:
        logps = [server.prompt_logps(ids) for ids in self.sequences]
        return torch.tensor([value for row in logps for value in row], dtype=torch.float64)

    def _look_after(self) -> None:
        # Until the run ends: bring a server that has come back what the others have.
        refused: set[Server] = set()
        while not self._stop.wait(LOOK_SECONDS):
            for server in [server for server in self._fleet.gone() if server not in refused]:
                try:
                    self._bring_back(server)
                except UserError as error:
                    # What is wrong with it does not pass; the others go on without.
                    refused.add(server)
                    self._fleet.lose(server, str(error))
                    if len(refused) == len(self._fleet.servers):
                        self._fleet.fail(error)
                        return

    def _bring_back(self, server: Server) -> None:
        if self._restart is not None:
            self._restart(server)
        if server.is_up():
            with self._lock:
                self._proofs.pop(server, None)
                self._holds.pop(server, None)
                self._bring_or_lose(server)


def _refuse_another_model(server: Server, delivery: Delivery) -> None:
    # Compare the server's own folder with what it is to be sent, where that folder is seen from here.
    folder = Path(str(server.model().get("root", "")))
    if server.adapters or not folder.is_dir():
        return
    stored: dict[str, tuple[int, ...]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            stored |= {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
    refuse_other_model(delivery.manifest, stored, server.url)
