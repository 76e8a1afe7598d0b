"""SIGTERM and Ctrl-C end a run in good order: the last whole step is saved, then the process leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from plaudit.training.parallel import AgreedStopError, Ranks


class InterruptedRunError(AgreedStopError):
    """A signal asked the run to stop; ``signum`` says which."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Listener:
    """Remembers a signal until a place is reached where the run may stop."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._heard = 0

    def stop_if_asked(self) -> None:
        """Leave here when a signal has come, to any rank."""
        heard = int(max(row[0] for row in self._ranks.every([float(self._heard)])))
        if heard:
            raise InterruptedRunError(heard)

    def hear(self, signum: int, frame: FrameType | None) -> None:
        """Take a signal; a second Ctrl-C does not wait."""
        del frame
        if self._heard and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if self._ranks.first and not self._heard:
            name = signal.Signals(signum).name
            words = f"plaudit: {name}: saving as soon as it can be, then stopping; Ctrl-C stops at once\n"
            # A handler may run in the middle of a print, where another print would fail.
            os.write(2, words.encode())
        self._heard = signum


@contextmanager
def listening(ranks: Ranks) -> Iterator[Listener]:
    """Listen for SIGTERM and SIGINT while the block runs."""
    listener = Listener(ranks)
    before = {number: signal.signal(number, listener.hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield listener
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
