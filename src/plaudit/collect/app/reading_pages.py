"""What a person who labels reads and sets beside the tasks: guidelines, categories and languages, keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from plaudit.collect.app.pages import Answer, Page, Sent, Shown, Visit
from plaudit.collect.own import own_preferences
from plaudit.collect.people import set_preferences
from plaudit.collect.project import Project, guidelines_version
from plaudit.collect.qualifying import guidelines_read, read_guidelines
from plaudit.collect.refusals import FieldError


def _guidelines(visit: Visit) -> Answer:
    project = visit.store.project(visit.who.project)
    values = {
        "words": project.guidelines,
        "version": guidelines_version(project),
        "read": visit.store.read(guidelines_read, *visit.person),
    }
    return Shown(template="guidelines.html", values=values)


def _read_guidelines(visit: Visit) -> Answer:
    version = visit.form.need("version")
    # Those that were on the page: what changed while it was read is asked for again.
    visit.store.write(read_guidelines, *visit.person, version)
    return Sent(to="/label")


def _preferences(visit: Visit) -> Answer:
    return _preferences_page(visit, visit.store.read(own_preferences, *visit.person))


def _preferences_page(
    visit: Visit, chosen: Mapping[str, Sequence[str]], error: FieldError | None = None
) -> Shown:
    values = {
        "upsetting": _declinable(visit.store.project(visit.who.project), chosen["declined"]),
        "declined": chosen["declined"],
        "languages_read": " ".join(chosen["languages"]),
        "areas_known": ", ".join(chosen.get("areas", ())),
        "error": error,
        "notices": [("notice-preferences", "good")] if visit.query.get("notice") == "preferences" else [],
    }
    return Shown(template="preferences.html", values=values, status=200 if error is None else 422)


def _declinable(project: Project, declined: Sequence[str]) -> list[str]:
    """What may be declined, with what was declined already and is asked for no more."""
    return [*project.upsetting, *(word for word in declined if word not in project.upsetting)]


def _prefer(visit: Visit) -> Answer:
    chosen = {
        "declined": visit.form.many("declined"),
        "languages": (visit.form.value("languages") or "").split(),
        # With the comma of Arabic too.
        "areas": [area.strip() for area in re.split("[,،]", visit.form.value("areas") or "") if area.strip()],
    }
    try:
        visit.store.write(set_preferences, *visit.person, **chosen)
    except FieldError as error:
        return _preferences_page(visit, chosen, error)
    return Sent(to="/preferences?notice=preferences")


def _keys(visit: Visit) -> Answer:
    del visit
    return Shown(template="keys.html")


PAGES: tuple[Page, ...] = (
    Page(method="GET", path="/guidelines", scope="label", handler=_guidelines),
    Page(method="POST", path="/guidelines/read", scope="label", handler=_read_guidelines),
    Page(method="GET", path="/preferences", scope="label", handler=_preferences),
    Page(method="POST", path="/preferences", scope="label", handler=_prefer),
    Page(method="GET", path="/keys", scope="any", handler=_keys),
)
"""The pages beside the tasks."""
