"""A project with people of every role, and browsers in which they are signed in."""

import re
from pathlib import Path
from typing import Any

from httpx2 import Response
from starlette.testclient import TestClient

from plaudit.collect import review
from plaudit.collect.answering import add_note, submit_answer
from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import issue_token
from plaudit.collect.quality.cache import Reports, read_report
from plaudit.collect.quality.result import (
    AgreementRow,
    Consensus,
    Drift,
    Figure,
    Odds,
    PersonQuality,
    Proposal,
    Quality,
)
from plaudit.collect.sessions import open_session
from tests.collect import desks

HERE = "http://127.0.0.1:8080"
SAME = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}


class Forms:
    """Somebody's browser, which sends forms with the token of the page that was read last."""

    def __init__(self, app: Any, *, raise_server_exceptions: bool = True) -> None:
        self.client = TestClient(app, base_url=HERE, raise_server_exceptions=raise_server_exceptions)
        self.token = ""

    def get(self, path: str, language: str = "en") -> Response:
        return self._read(self.client.get(path, headers={"Accept-Language": language}))

    def post(self, path: str, **fields: Any) -> Response:
        return self._read(self.client.post(path, data={"form_token": self.token, **fields}, headers=SAME))

    def _read(self, response: Response) -> Response:
        found = re.search(r'name="form_token" value="(\w+)"', response.text)
        self.token = found[1] if found else self.token
        return response


class Browser(Forms):
    """Somebody who is signed in."""

    def __init__(self, office: "Office", role: str, project: str = "p") -> None:
        super().__init__(office.app)
        self.office = office
        joined = office.store.write(issue_token, project, role, name=f"{role} Name")
        self.pseudonym = joined.pseudonym
        secret = office.store.write(open_session, project, joined.pseudonym).secret
        self.client.cookies.set("plaudit-8080", secret)

    def post(self, path: str, **fields: Any) -> Response:
        """Send the fields; the token is that of a page that has one, as the account has."""
        if not self.token:
            self.get("/account")
        return super().post(path, **fields)


class Office:
    """A project with people, labels and disagreements, and its app."""

    def __init__(self, where: str | Path) -> None:
        self.desk = desks.Desk(where, overlap=2, guidelines="Prefer what is true.")
        self.store = self.desk.store
        self.reports = Reports(self.store)
        self.app = make_app(self.store, site_of(8080), self.reports)
        self.owner, self.reviewer, self.annotator = (
            Browser(self, role) for role in ("owner", "reviewer", "annotator")
        )

    def divide(self) -> list[str]:
        """Four people label all tasks: for A, for B, for neither, for A; gives the tasks' ids."""
        for number, person in enumerate(self.desk.people(4)):
            while isinstance(lease := self.store.write(next_task, "p", person), Lease):
                better = self.desk.better(lease)
                label = {"strength": (better, -better, 0, better)[number], "why": f"Because of {number} <b>."}
                key = f"{person}{lease.assignment}"
                self.store.write(
                    add_note, "p", person, lease.assignment, f"n{key}", f"A note, number {number}."
                )
                self.store.write(submit_answer, "p", person, lease.assignment, key, label, seconds=12.5)
        found = review.search_tasks(self.store, "p", state="review").tasks
        return [task.id for task in found]


FIGURE = Figure(value=0.71, low=0.66, high=0.75, n=400)
NOTHING = Figure(value=None, reason="no label says anything of it")


def a_report(office: Office, **more: Any) -> Quality:
    """A report with something of everything, of the position of now."""
    _, seq = read_report(office.store, "p")
    row = AgreementRow(
        part="all",
        name="",
        level="ordinal",
        alpha=FIGURE,
        gwet=FIGURE,
        percent=FIGURE,
        labels=400,
        units=200,
        people=4,
        prompts=100,
    )
    return Quality(
        **{
            "project": "p",
            "kind": "pair",
            "seq": seq,
            "labels": 400,
            "people": 4,
            "agreement": (row,),
            "annotators": (a_card(),),
            "biases": (Odds(name="length", unit="twice as long", odds=FIGURE, p=0.01),),
            "proposals": (Proposal(name="a2", standing="suspended", reasons=("12 of 30 <i> are right",)),),
            "consensus": Consensus(pairs=300, labels=900, certain=0.61, tied=0.08, undecided=24),
            "notes": ("Left out: nothing.",),
            **more,
        }
    )


def a_card() -> PersonQuality:
    return PersonQuality(
        name="a2",
        standing="active",
        labels=100,
        seconds=12.5,
        gold=FIGURE,
        skill=FIGURE,
        habit="first",
        habit_shares={"first": 0.9, "second": 0.1, "tie": 0.0},
        held_out=FIGURE,
        judge=FIGURE,
        pasted=NOTHING,
        consistency=NOTHING,
        first=FIGURE,
        longer=NOTHING,
        lists=NOTHING,
        refusals=NOTHING,
        place_odds=FIGURE,
        place_p=0.01,
        drift=(Drift(what="seconds", before=14.2, now=3.1, p=0.0002, n=50),),
        skipped=0,
    )
