"""Data sets that LLaMA-Factory's ``dataset_info.json`` lists: their files, and the names of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json

_PLACES_OF_SETS = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
_THEIR_COLUMNS = {
    "alpaca": {"prompt": "instruction", "query": "input", "response": "output"},
    "sharegpt": {"messages": "conversations"},
}
"""What LLaMA-Factory's columns are called in the layouts that they are read as, where that differs."""
_THEIR_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "system_tag": "system",
}
_KEYS_OF_TURNS = {"role_tag": ("from", "role", "speaker"), "content_tag": ("value", "content", "text")}
"""What the keys of a turn may be called."""


def listed_set(listed: Path, name: str | None) -> tuple[Path, tuple[str, ...]] | None:
    """The file of a set in this list, and what its fields are called; None where it is another list."""
    try:
        sets = exact_json.loads(listed.read_bytes())
    except ValueError as error:
        raise UserError(f"{listed}: not JSON ({error}); mend it") from error
    entries = sets if isinstance(sets, dict) else {}
    if not any(isinstance(entry, dict) and {*entry} & {*_PLACES_OF_SETS} for entry in entries.values()):
        return None
    name = next(iter(entries)) if name is None and len(entries) == 1 else name
    if name not in entries:
        several = "several data sets" if name is None else f"no data set {name!r}"
        names = ", ".join(entries)
        raise UserError(f"{listed}: {several}; say which with --split (in training --rows.split): {names}")
    entry = entries[name]
    if "file_name" not in entry:
        place = " ".join(str(entry[place]) for place in _PLACES_OF_SETS if place in entry)
        raise UserError(f"{listed}: {name} lies elsewhere ({place}); name that itself as the data")
    return listed.parent / entry["file_name"], tuple(_names_of_fields(entry, f"{listed}: {name}"))


def _names_of_fields(entry: Mapping[str, Any], where: str) -> Iterator[str]:
    names = _THEIR_COLUMNS.get(entry.get("formatting", "alpaca"))
    if names is None:
        readable = " and ".join(_THEIR_COLUMNS)
        raise UserError(f"{where}: formatting {entry['formatting']!r}; {readable} are read")
    columns: Mapping[str, str] = entry.get("columns", {})
    if {*columns} == {"prompt"}:
        names = {"prompt": "text"}
    for theirs, field in columns.items():
        ours = "label" if theirs == "kto_tag" else names.get(theirs, theirs)
        if field and ours != field:
            yield f"{ours}={field}"
    tags: Mapping[str, str] = entry.get("tags", {})
    for tag, keys in _KEYS_OF_TURNS.items():
        if tags.get(tag, keys[0]) not in keys:
            raise UserError(f"{where}: {tag} {tags[tag]!r}; turns are read with one of {', '.join(keys)}")
    yield from (f"{role}=role:{tags[tag]}" for tag, role in _THEIR_TAGS.items() if tag in tags)
