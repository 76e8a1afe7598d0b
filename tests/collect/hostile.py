"""Texts that have taken pages of other programs over, and some that only look like it.

Each is what somebody may write wherever words are taken: a prompt, an answer, a name, a note. A page shows
them as text. All that they try is heard by a browser that listens: a dialog, a request, a broken policy.
"""

from pathlib import Path

import yaml

_TEXTS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text("utf-8"))
ELEMENTS, BREAKOUTS, MARKED = (tuple(_TEXTS[name]) for name in ("elements", "breakouts", "marked"))
"""Elements; ways out of an attribute, a title, a script, a comment or a template; Markdown."""
HOSTILE: tuple[str, ...] = (*ELEMENTS, *BREAKOUTS, *MARKED)

STRANGE_ELEMENTS = """() => {
  const found = [], own = location.origin;
  const leads = (element, name) => new URL(element.getAttribute(name) ?? "", location.href);
  const never = ["img", "iframe", "object", "embed", "video", "audio", "mglyph", "base", "style", "marquee",
    "frame", "applet", "portal", "template", "noscript", "foreignObject", "animate", "set", "use", "maction"];
  const attributes = ["style", "srcdoc", "srcset", "ping", "background", "xlink:href"];
  for (const element of document.querySelectorAll("*")) {
    const tag = element.localName, say = () => found.push(element.outerHTML.slice(0, 100));
    if (never.includes(tag)) say();
    const isOwn = tag !== "script" || leads(element, "src").href.startsWith(own + "/static/");
    if (!isOwn || (tag === "script" && element.textContent.trim())) say();
    if (tag === "link" && leads(element, "href").origin !== own) say();
    if (tag === "meta" && element.hasAttribute("http-equiv")) say();
    if (tag === "form" && leads(element, "action").origin !== own) say();
    if (element.hasAttribute("formaction") && leads(element, "formaction").origin !== own) say();
    const isLink = ["http:", "https:", "mailto:"].includes(leads(element, "href").protocol);
    if (tag === "a" && (element.closest("svg") || !isLink)) say();
    if (element.closest("math") && (element.hasAttribute("href") || !/^m/.test(tag))) say();
    if (tag === "dialog" && element.open) say();
    for (const name of element.getAttributeNames())
      if (name.startsWith("on") || attributes.includes(name)) say();
  }
  return found;
}"""
"""A script that lists what no template of the app holds, so that it can only have come from a text."""
