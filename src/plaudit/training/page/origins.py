"""The foot of the page: what went in, the settings, and the commands that go on from here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from plaudit.page.html import Html, element, folded, section, shortened
from plaudit.training.lineage import Lineage
from plaudit.training.page.facts import RunFacts

_MOST_CONFIG = 50_000
_HASH = 12


def origins(origin: Lineage | None) -> Html:
    """What went in, by hash and version."""
    title = "Where it comes from"
    if origin is None:
        return section(title, "origins", element("p", {}, "The run ended before it wrote lineage.json."))
    caption = "Contents by the first characters of their sha256; point at one for all, or see lineage.json."
    rows = [
        element("tr", {}, element("th", {"scope": "row"}, name), element("td", {}, value))
        for name, value in _rows(origin)
    ]
    table = element("table", {}, element("caption", {}, caption), element("tbody", {}, *rows))
    return section(title, "origins", table)


def settings(config: str) -> Html:
    """config.yaml, folded."""
    text = element("pre", {}, element("code", {}, shortened(config, _MOST_CONFIG)))
    return section("Settings", "settings", folded("config.yaml, every setting as it was resolved", text))


def commands(facts: RunFacts, command: str) -> Html:
    """How to go on with the run, and how to use what it has made."""
    config = shlex.quote(str(facts.path / "config.yaml"))
    if facts.finished:
        again = shlex.quote(f"{facts.path}-again")
        parts = [_command("To run it again in another folder:", f"{command} --config {config} --out {again}")]
    else:
        parts = [_command("To go on where it stopped:", f"{command} --config {config}")]
    if facts.result != "none":
        parts.append(_command("To use the model in Python:", _loading(facts)))
    where = "Paths are as they were when this page was written: run commands from the same place."
    return section("Going on", "going-on", *parts, element("p", {"class": "quiet"}, where))


def _command(what: str, text: str) -> Html:
    return element("div", {}, element("p", {}, what), element("pre", {}, element("code", {}, text)))


def _loading(facts: RunFacts) -> str:
    library, kind = ("peft", "AutoPeftModelForCausalLM")
    if facts.result == "model":
        library, kind = ("transformers", "AutoModelForCausalLM")
    folder = repr(str(facts.path / "model"))
    return (
        f"from {library} import {kind}\n"
        "from transformers import AutoTokenizer\n\n"
        f"model = {kind}.from_pretrained({folder})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({folder})"
    )


def _rows(origin: Lineage) -> Iterator[tuple[str, str]]:
    for name, digest in origin.data.items():
        yield f"data: {name}", short_hash(digest)
    for name in ("model", "template", "tokenizer"):
        digest = getattr(origin, name)
        if digest is not None:
            yield {"model": "base model"}.get(name, name), short_hash(digest)
    yield "seed", str(origin.seed)
    yield "plaudit", version(origin.code)
    yield "libraries", ", ".join(f"{name} {version}" for name, version in origin.libraries.items())
    yield "machine", ", ".join(f"{name} {value}" for name, value in origin.machine.items())


def version(code: Mapping[str, object]) -> str:
    """The version of plaudit that was used, with its commit where that is known."""
    commit = code.get("commit")
    if not commit:
        return f"version {code.get('plaudit')}"
    changed = ", with files that differed from it" if code.get("changed") else ""
    return f"version {code.get('plaudit')}, commit {str(commit)[:_HASH]}{changed}"


def short_hash(digest: str) -> Html:
    """The beginning of a hash; the whole of it for those who point at it."""
    return element("code", {"title": digest}, f"{digest[:_HASH]}…")
