"""The page of a project's settings: a form of those that may be changed in a browser."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from plaudit.collect import review
from plaudit.collect.adding import set_project, settings_seq
from plaudit.collect.app.managing import manage_page, whole_number
from plaudit.collect.app.pages import Answer, Form, Sent, Shown, Visit, page
from plaudit.collect.app.safety import status_of
from plaudit.collect.project import Project, guidelines_version
from plaudit.collect.refusals import ChangedMeanwhileError, FieldError, check_choice
from plaudit.errors import UserError

FORMS: Mapping[str, str] = {
    "question": "line",
    "guidelines": "text",
    "text": "choice",
    "scale": "words",
    "ties": "switch",
    "aspects": "words",
    "points": "whole",
    "flags": "words",
    "groups": "lists",
    "upsetting": "words",
    "overlap": "whole",
    "most": "maybe-whole",
    "prompt_limit": "maybe-whole",
    "lease_minutes": "whole",
    "gold_share": "share",
    "repeat": "share",
    "qualify_n": "whole",
    "qualify_floor": "share",
    "qualify_teach": "switch",
}
"""The settings of the form, in its order, with what each is; all others are set by ``plaudit collect
project``: which files and servers are read is for whoever runs the machine."""
_CHOICES = {"text": ("plain", "markdown")}
_SWITCHED_ON = "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    name: str
    form: str
    """line, text, words (a line each), lists (a line each), switch, whole, maybe-whole, share or choice."""
    value: str
    options: tuple[str, ...] = ()


def setting_fields(project: Project, given: Form | None) -> list[SettingField]:
    """The fields of the form: with the settings as they are, or with what somebody filled in."""
    return [
        SettingField(
            name=name,
            form=form,
            value=_shown(getattr(project, name), form) if given is None else given.value(name) or "",
            options=_CHOICES.get(name, ()),
        )
        for name, form in FORMS.items()
    ]


def _shown(value: Any, form: str) -> str:
    if form == "switch":
        return _SWITCHED_ON if value else ""
    if form == "lists":
        return "\n".join(f"{name}: {', '.join(words)}" for name, *words in value)
    if form == "words":
        return "\n".join(value)
    return "" if value is None else str(value)


def settings_from_form(before: Project, form: Form) -> Project:
    """The settings that a form asks for; those that it does not have stay as they are."""
    values = {
        name: _READERS[kind](name, form.value(name) or "")
        for name, kind in FORMS.items()
        # A box that is not checked is not sent at all.
        if name in form.fields or kind == "switch"
    }
    if "aspects" in values and before.anchors:
        # By name: aspects in another order keep the words of their levels.
        values["anchors"] = tuple(before.words_of(aspect) for aspect in values["aspects"])
    return replace(before, **values)


def _whole(name: str, text: str) -> int:
    if not text.strip():
        raise FieldError(field=name, found="nothing", expected="a whole number")
    return whole_number({name: text.strip()}, name)


def _share(name: str, text: str) -> float:
    try:
        share = float(text.strip().replace(",", "."))
    except ValueError:
        share = math.nan
    # Written so that what is no number is refused too.
    if not 0 <= share <= 1:
        raise FieldError(field=name, found=repr(text[:40]), expected="a share from 0 to 1, such as 0.05")
    return share


def _lists(name: str, text: str) -> tuple[tuple[str, ...], ...]:
    # A line each: a name, a colon, and words with commas between them.
    lists = list[tuple[str, ...]]()
    for line in filter(str.strip, text.split("\n")):
        head, colon, words = line.partition(":")
        if not colon:
            raise FieldError(field=name, found=repr(line[:40]), expected="lines such as region: north, south")
        lists.append((head.strip(), *(word.strip() for word in words.split(",") if word.strip())))
    return tuple(lists)


def _choice(name: str, text: str) -> str:
    check_choice(name, text, _CHOICES[name])
    return text


_READERS = {
    "line": lambda name, text: text.strip(),
    "text": lambda _, text: text,
    "words": lambda name, text: tuple(line.strip() for line in text.split("\n") if line.strip()),
    "lists": _lists,
    "switch": lambda _, text: text == _SWITCHED_ON,
    "whole": _whole,
    "maybe-whole": lambda name, text: _whole(name, text) if text.strip() else None,
    "share": _share,
    "choice": _choice,
}


def _settings_page(visit: Visit, *, given: Form | None = None, fault: UserError | None = None) -> Shown:
    with visit.store.looking() as moment:
        project = moment.settings(visit.who.project)
        seq = settings_seq(moment.connection, project.name) or 0
    form_fields = setting_fields(project, given)
    listed = {setting.name for setting in form_fields} | {"name"}
    fixed = [
        (item.name, str(getattr(project, item.name)))
        for item in fields(Project)
        if item.name not in listed and getattr(project, item.name) not in (None, ())
    ]
    return manage_page(
        visit,
        "manage_settings.html",
        status=200 if fault is None else _status(fault),
        settings=form_fields,
        fixed=fixed,
        seq=seq,
        version=guidelines_version(project),
        history=review.settings_history(visit.store, visit.who.project),
        saved=visit.query.get("saved", ""),
        error=fault if isinstance(fault, FieldError) else None,
        problem="" if fault is None else str(fault),
        outdated=isinstance(fault, ChangedMeanwhileError),
    )


def _status(fault: UserError) -> int:
    """The status of a form that is shown again: what is refused in general is refused for its fields."""
    status = status_of(fault)
    return 422 if status == 400 else status


def _set(visit: Visit) -> Answer:
    before = visit.store.project(visit.who.project)
    try:
        now = settings_from_form(before, visit.form)
        if now == before:
            return Sent(to="/manage/settings?saved=same")
        replacing = _whole("seq", visit.form.need("seq"))
        visit.store.write(set_project, now, actor=visit.who.pseudonym, replacing=replacing)
    except UserError as fault:
        # What was filled in is shown again, whatever was wrong with it.
        return _settings_page(visit, given=visit.form, fault=fault)
    return Sent(to="/manage/settings?saved=yes")


PAGES = (page("GET /manage/settings", "read", _settings_page), page("POST /manage/settings", "manage", _set))
