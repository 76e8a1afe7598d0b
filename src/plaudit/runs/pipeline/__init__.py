"""From rows to a better policy and its report in one command: stages, reused, resumed and traced."""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker

PRELOADED = [
    "plaudit.runs.pipeline.workers",
    "plaudit.methods.policy.run",
    "plaudit.evaluation.policies.evaluate",
    "plaudit.evaluation.reward_models.evaluate",
]
"""What stages need and takes seconds to import."""


def begin_loading() -> None:
    """Load it, beside this process, in the one that the processes of stages are forked from."""
    # Once that process runs, both calls do nothing.
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    # It lets signals through when it starts, so it comes first.
    resource_tracker.ensure_running()
    # Ctrl-C reaches every process of a terminal, and must not end that one in the middle of an import.
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
