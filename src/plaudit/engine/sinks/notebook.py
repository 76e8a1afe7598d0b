"""The bar of a run that is watched in a notebook."""

from __future__ import annotations

import html
from importlib import import_module
from typing import Any

from rich.progress import TaskID


class NotebookBar:
    """A bar under a cell of a notebook; it is called as rich's is, which would need widgets for one."""

    task_ids = (TaskID(0),)

    def __init__(self) -> None:
        self._shown: Any = None
        self._state: dict[str, Any] = {}

    def add_task(self, name: str, **state: Any) -> None:
        """What is counted: ``total``, ``completed`` and ``words`` behind the bar."""
        del name
        self._state = state

    def start(self) -> None:
        display = import_module("IPython.display").display
        self._shown = display(self, display_id=True)

    def update(self, task: TaskID, **state: Any) -> None:
        """Change the numbers; `refresh` shows them."""
        del task
        self._state |= state

    def refresh(self) -> None:
        self._shown.update(self)

    def stop(self) -> None:
        """Leave the bar as it is."""

    def __repr__(self) -> str:
        return f"{self._state['completed']}/{self._state['total']}  {self._state['words']}"

    def _repr_html_(self) -> str:
        done, total = self._state["completed"], self._state["total"]
        words = html.escape(self._state["words"])
        return f'<progress max="{total}" value="{done}"></progress> {done}/{total} &nbsp; {words}'
