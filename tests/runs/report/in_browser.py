"""A page in a real browser, in frames of several widths."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS: tuple[int, ...] = (320, 390, 1200)
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)
_MEASURE = """
addEventListener("load", () => {
  document.title = JSON.stringify(Array.from(frames, (frame) => {
    const style = frame.getComputedStyle(frame.document.querySelector("main"));
    return [frame.document.documentElement.scrollWidth, style.maxWidth];
  }));
});
"""
_CUT_OFF = """
const outside = (text) => {
  const box = text.getBBox(), all = text.ownerSVGElement.viewBox.baseVal;
  const right = box.x + box.width, foot = box.y + box.height;
  return box.x < -0.5 || right > all.width + 0.5 || box.y < -0.5 || foot > all.height;
};
addEventListener("load", () => {
  document.title = JSON.stringify(Array.from(frames, (frame) =>
    Array.from(frame.document.querySelectorAll("svg text")).filter(outside).map((text) => text.textContent)));
});
"""
_CROSSED = """
const around = (one) => {
  const box = one.getBBox();
  return [box.x + 1, box.y + 1, box.x + box.width - 1, box.y + box.height - 1];
};
const points = (path) => {
  const length = path.getTotalLength(), found = [];
  for (let at = 0; at <= length; at += 1.5) found.push(path.getPointAtLength(at));
  return found;
};
const touch = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
const holds = (box, p) => box[0] < p.x && p.x < box[2] && box[1] < p.y && p.y < box[3];
const faults = (svg) => {
  const texts = Array.from(svg.querySelectorAll("text")), boxes = texts.map(around), found = [];
  const lines = svg.querySelectorAll("path:not([transform])");
  for (const line of lines) for (const p of points(line)) boxes.forEach((box, at) => {
    if (holds(box, p)) found.push(`${texts[at].textContent} on ${line.getAttribute("class")}`);
  });
  boxes.forEach((box, at) => boxes.slice(at + 1).forEach((other, next) => {
    if (touch(box, other)) found.push(`${texts[at].textContent} on ${texts[at + 1 + next].textContent}`);
  }));
  return found.map((fault) => `${svg.querySelector("title")?.textContent ?? svg.ariaLabel}: ${fault}`);
};
addEventListener("load", () => {
  document.title = JSON.stringify(Array.from(frames, (frame) =>
    Array.from(new Set(Array.from(frame.document.querySelectorAll("svg:not(.sign)")).flatMap(faults)))));
});
"""


_FIRST_LOOK = """
addEventListener("load", () => {
  document.title = JSON.stringify(Array.from(frames, (frame) => {
    const all = frame.document, picture = all.querySelector(".lead").getBoundingClientRect();
    const contents = frame.getComputedStyle(all.querySelector(".contents")).position;
    return [all.documentElement.scrollHeight, picture.bottom, contents];
  }));
});
"""


def measured(page: str, folder: Path) -> dict[int, list[int | str]]:
    """How wide the page becomes in frames of these widths, and how wide its style lets its text be."""
    found: list[list[int | str]] = _asked(page, folder, _MEASURE)
    return dict(zip(WIDTHS, found, strict=True))


def keeps_to_its_width(page: str, folder: Path) -> None:
    """With all its parts open nothing is wider than a phone, its style is let in, no drawing is cut off."""
    opened = page.replace("<details>", "<details open>")
    assert measured(opened, folder) == {320: [320, "1184px"], 390: [390, "1184px"], 1200: [1200, "1184px"]}
    assert cut_off(opened, folder) == []


def first_look(page: str, folder: Path) -> dict[int, list[int | str]]:
    """How long the page is at these widths, where its first picture ends, and how its contents stand."""
    found: list[list[int | str]] = _asked(page, folder, _FIRST_LOOK)
    return dict(zip(WIDTHS, found, strict=True))


def cut_off(page: str, folder: Path) -> list[str]:
    """Words of the page's drawings that reach beyond their drawing, as the browser's own fonts set them."""
    found: list[list[str]] = _asked(page, folder, _CUT_OFF)
    return sorted({words for frame in found for words in frame})


def crossed(page: str, folder: Path) -> list[str]:
    """Words of the page's drawings that lie on a line or on other words, each with its drawing."""
    found: list[list[str]] = _asked(page, folder, _CROSSED)
    return sorted({words for frame in found for words in frame})


def _asked(page: str, folder: Path, script: str) -> Any:
    frames = "".join(f'<iframe width={w} height=900 srcdoc="{html.escape(page)}"></iframe>' for w in WIDTHS)
    outer = folder / "outer.html"
    head = "<!DOCTYPE html><meta charset=utf-8><style>iframe { border: 0 }</style>"
    outer.write_text(f"{head}<script>{script}</script>{frames}", "utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, *_QUIET, f"--user-data-dir={folder / 'profile'}", "--dump-dom", outer.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (title,) = re.findall(r"<head>.*?<title>(.*?)</title>", done.stdout, re.DOTALL)
    return json.loads(html.unescape(title))
