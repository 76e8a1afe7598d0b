"""Texts that nobody may trust, as HTML in which nothing can run and which loads nothing.

Plain texts are escaped. Markdown has code in colours and formulas in MathML; whatever its rules made of it is
cleaned by a list of what may stay.
"""

import difflib
import re
from collections.abc import Sequence
from functools import cache
from html import unescape
from typing import Any
from xml.etree.ElementTree import Element, tostring

from markupsafe import Markup, escape

# Controls, marks that turn the order of letters round, and tags that nobody sees. The joiners and the marks
# of direction that Arabic and Hebrew are written with stay.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
# No h1 and no h2: these are the page's own. No picture: a browser would fetch it from its owner.
_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "h3", "h4"),
    *("h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "span", "math", "menclose", "mfrac", "mi"),
    *("mn", "mo", "mover", "mpadded", "mphantom", "mrow", "mspace", "mstyle", "msub", "msubsup", "msup"),
    *("mtable", "mtd", "mtext", "mtr", "munder", "munderover"),
}
# Nothing of MathML that leads elsewhere, paints, or moves a formula over other words.
_ATTRIBUTES = {
    *("accent", "columnalign", "display", "displaystyle", "fence", "form", "linethickness", "lspace"),
    *("mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rspace", "scriptlevel"),
    *("separator", "stretchy", "width"),
}
_SAFE_VALUE = re.compile(r"[a-z -]{1,40}|-?\d?(\.\d+)?(em|ex|pt)?")
# Those that people ask for: rules of others take minutes for a text that was made to that end.
_LANGUAGES = {
    *("bash", "c", "c++", "cpp", "css", "diff", "go", "haskell", "html", "java", "javascript"),
    *("js", "json", "julia", "kotlin", "lua", "php", "py", "python", "r", "ruby", "rust", "scala", "sh"),
    *("sql", "swift", "tex", "ts", "typescript", "xml", "yaml"),
}
_MOST_CODE, _MOST_FORMULA, _MOST_LINES, _MOST_COMPARED = 4_000, 4_000, 60, 25_000_000
# Dollars are money unless they hug what they enclose; "$5 or 6$" is money too. Who opens another formula, or
# code, before the first is closed has not written a formula.
_FORMULA = re.compile(
    r"\$\$(?:\\.|[^`$\\])+\$\$"
    r"|\\\[(?:[^`\\]|\\[^\[\]])+\\\]"
    r"|\\\((?:[^`\\]|\\[^()])+\\\)"
    r"|(?<![\w$])\$(?!\s|\d[^\\^_{$]*?(?:\s[A-Za-z]{2}|[A-Za-z]{3}))(?:\\.|[^`$\\])+(?<!\s)\$(?![\w$])",
    re.DOTALL,
)
# Macros that double at each of a hundred depths would never end.
_MACRO = re.compile(r"\\(newcommand|newenvironment|DeclareMathOperator|def)(?![A-Za-z])")
_ENVIRONMENT = re.compile(r"\\begin\s*\{(.*?)\}")
# A word or a sign with the tags before it, as one piece of HTML; a formula is one word.
_WORD = re.compile(r"(?:\s|<(?!math\b)[^>]*>)*(?:<math\b.*?</math>|&#?\w+;|\w+|[^<]|$)", re.DOTALL)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TAG = re.compile(r"<(?!/?m)[^>]*>")
_RUN = re.compile(r"<(?!math\b)[^>]*>|((?:<math\b.*?</math>|[^<])+)", re.DOTALL)


def visible(text: str) -> str:
    """A text with letters that cannot be seen, or that turn others round, written by their numbers.

    >>> visible("tab\\tstays, \\u202e does not")
    'tab\\tstays, ⟨U+202E⟩ does not'
    """
    return _INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def html_of(words: str, markdown: bool) -> Markup:
    """What somebody wrote, in the box in which pages show it."""
    return _boxed(clean_markdown(words) if markdown else escape(visible(words)), markdown)


def _boxed(html: str, markdown: bool) -> Markup:
    return Markup(f'<div class="text{" markdown" if markdown else ""}" dir="auto">{html}</div>')


def clean_markdown(words: str) -> Markup:
    """Markdown as HTML in which nothing can run, and which loads nothing.

    >>> clean_markdown("*so* <b>not</b>").strip()
    Markup('<p><em>so</em> &lt;b&gt;not&lt;/b&gt;</p>')
    """
    # Here, as only projects with Markdown need them.
    import nh3
    from pygments.token import STANDARD_TYPES

    html = _markdown_reader().render(visible(words))
    cleaned = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"*": _ATTRIBUTES, "a": {"href"}, "ol": {"start"}, "span": {"tabindex"}},
        attribute_filter=lambda tag, name, value: (
            value if name not in _ATTRIBUTES or _SAFE_VALUE.fullmatch(value) else None
        ),
        allowed_classes={"span": {"formula", *STANDARD_TYPES.values()}, "mrow": {"root"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        # Both may be wider than the page, and whoever has no mouse scrolls what has the focus.
        set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}},
    )
    return Markup(cleaned)


@cache
def _markdown_reader() -> Any:
    from markdown_it import MarkdownIt

    options = {"html": False, "linkify": False, "highlight": _coloured}
    reader = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    reader.disable("image")
    reader.inline.ruler.before("escape", "formula", _formula)
    ends = ["paragraph", "reference", "blockquote", "list"]
    reader.block.ruler.before("fence", "formula", _formula_block, {"alt": ends})
    reader.add_render_rule("formula", _formula_html)
    reader.add_render_rule("heading_open", _heading)
    reader.add_render_rule("heading_close", _heading)
    return reader


def _heading(renderer: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    # Two levels down, below the page's own headings, so that a screen reader's outline stays true.
    tokens[at].tag = f"h{min(int(tokens[at].tag[1]) + 2, 6)}"
    return renderer.renderToken(tokens, at, options, env)


def _coloured(code: str, language: str, _: str) -> str:
    """Code in spans with classes; an empty text, for which it is escaped, where nothing is known of it."""
    if language.lower() not in _LANGUAGES or len(code) > _MOST_CODE:
        return ""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    return highlight(code, lexer, HtmlFormatter(nowrap=True))


def _formula(state: Any, silent: bool) -> bool:
    match = _FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = match[0]
    state.pos = match.end()
    return True


def _formula_block(state: Any, start: int, end: int, silent: bool) -> bool:
    """A formula on lines of its own, which Markdown would else take for headings or lists."""
    first = state.bMarks[start] + state.tShift[start]
    if state.src[first : first + 2] not in ("$$", r"\["):
        return False
    end = min(end, start + _MOST_LINES)
    stop = next((line for line in range(start, end) if state.isEmpty(line)), end)
    text = state.getLines(start, stop, state.blkIndent, False)
    match = _FORMULA.match(text, len(text) - len(text.lstrip()))
    if match is None or text[match.end() :].partition("\n")[0].strip():
        return False
    if not silent:
        state.push("formula", "", 0).content = match[0]
        state.line = start + text[: match.end()].count("\n") + 1
    return True


def _formula_html(renderer: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    source = tokens[at].content
    display = source[:2] in ("$$", r"\[")
    edge = 2 if display or source[0] == "\\" else 1
    mathml = _mathml(source[edge:-edge], "block" if display else "inline")
    if mathml is None:
        return f"<code>{escape(source)}</code>"
    return f'<span class="formula" tabindex="0">{mathml}</span>' if display else mathml


def _mathml(source: str, display: str) -> str | None:
    """A formula as MathML; None where it is broken, too long, or full of what nobody here can read."""
    from latex2mathml import commands, exceptions
    from latex2mathml.converter import Converter

    source = re.sub(r"\b(aligned|gathered)\}", "align*}", source)
    strange = [name for name in _ENVIRONMENT.findall(source) if rf"\{name}" not in commands.MATRICES]
    if len(source) > _MOST_FORMULA or _MACRO.search(source) or strange:
        return None
    classes = [value for value in vars(exceptions).values() if isinstance(value, type)]
    refusals = [refusal for refusal in classes if issubclass(refusal, Exception)]
    try:
        root = Converter(display=display).convert_to_element(source)
    except (AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError, *refusals):
        return None
    for element in [*root.iter()]:
        # The library writes letters by their numbers, and leaves what else there is as it was typed.
        element.text = visible(unescape(element.text or "")).replace("\n", " ")
        if element.tag in ("msqrt", "mroot"):
            _draw_root(element)
    return tostring(root, encoding="unicode")


def _draw_root(element: Element) -> None:
    """As a sign and a line of the style sheet: without a font for mathematics browsers draw no root."""
    inside, degree = [*element], []
    if element.tag == "mroot":
        degree = [Element("msup")]
        degree[0].extend([Element("mrow"), inside.pop()])
    sign, covered = Element("mo", stretchy="true"), Element("mrow", {"class": "root"})
    sign.text = "√"
    covered.extend(inside)
    element.tag, element[:] = "mrow", [*degree, sign, covered]


def differences(left: str, right: str, markdown: bool = False) -> tuple[Markup, Markup] | None:
    """Two texts with marks on what the other has not: by words, of long texts by lines, else None.

    >>> [str(side) for side in differences("a red owl", "a blue owl")][0]
    '<div class="text" dir="auto">a <mark>red</mark> owl</div>'
    """
    htmls = [clean_markdown(text) if markdown else escape(visible(text)) for text in (left, right)]
    for unit in (_WORD, _LINE):
        pieces = [unit.findall(str(html)) for html in htmls]
        keys = [[_TAG.sub("", piece).strip() for piece in side] for side in pieces]
        # Comparing takes time with the product of the lengths, and a page must not take seconds.
        if len(pieces[0]) * len(pieces[1]) <= _MOST_COMPARED:
            first, second = _marked(pieces, keys)
            return _boxed(first, markdown), _boxed(second, markdown)
    return None


def _marked(pieces: Sequence[Sequence[str]], keys: Sequence[Sequence[str]]) -> tuple[str, str]:
    sides = ["", ""]
    for what, *ends in difflib.SequenceMatcher(None, keys[0], keys[1]).get_opcodes():
        for side in (0, 1):
            html = "".join(pieces[side][ends[2 * side] : ends[2 * side + 1]])
            sides[side] += html if what == "equal" else _RUN.sub(_mark, html)
    return sides[0], sides[1]


def _mark(match: re.Match[str]) -> str:
    # Tags and blanks alone are not worth a mark.
    core = (match[1] or "").strip()
    return match[0].replace(core, f"<mark>{core}</mark>") if core else match[0]
