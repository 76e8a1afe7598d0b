"""Texts that have taken pages of other programs over, and some that only look like it.

Each is what somebody may write wherever words are taken: a prompt, an answer, a name, a note. A page shows
them as text. All that they try is heard by a browser that listens: a dialog, a request, a broken policy.
"""

from __future__ import annotations

_AWAY = "https://elsewhere.invalid"

ELEMENTS: tuple[str, ...] = (
    "<script>alert(1)</script>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "<script/x>alert(1)</script>",
    "<script\n>alert(1)</script\n>",
    "<<script>alert(1)//<</script>",
    "</script><script>alert(1)</script>",
    f"<script src={_AWAY}/x.js></script>",
    f"<script src=//{_AWAY[8:]}/x.js></script>",
    "<script type=module>import('data:text/javascript,alert(1)')</script>",
    "<script>fetch('/account').then(r => r.text()).then(alert)</script>",
    "<img src=x onerror=alert(1)>",
    "<img/src=x/onerror=alert(1)>",
    "<img src=x onerror=alert`1`>",
    '<img src=x:x onerror="alert(1)"',
    "<img src='x' onerror='alert(1)'//",
    f"<img src={_AWAY}/pixel.png>",
    f"<img srcset='{_AWAY}/a.png 1x, {_AWAY}/b.png 2x'>",
    '<IMG """><SCRIPT>alert(1)</SCRIPT>">',
    "<svg onload=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><set onbegin=alert(1) attributename=x>",
    "<svg><a xlink:href='javascript:alert(1)'><text y=20>press</text></a></svg>",
    f"<svg><use href='{_AWAY}/s.svg#x'></use></svg>",
    "<svg><foreignObject><body onload=alert(1)></foreignObject></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<math href='javascript:alert(1)'>press</math>",
    "<body onload=alert(1)>",
    "<body onpageshow=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<textarea autofocus onfocus=alert(1)>",
    "<select autofocus onfocus=alert(1)>",
    "<button autofocus onfocus=alert(1)>press</button>",
    "<details open ontoggle=alert(1)>",
    "<video onerror=alert(1)><source src=x></video>",
    f"<video poster={_AWAY}/p.png autoplay>",
    "<audio src=x onerror=alert(1)>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<div onpointerover=alert(1)>over</div>",
    "<div style='animation: spin 1s' onanimationstart=alert(1)>x</div>",
    f"<div style=\"background: url('{_AWAY}/b.png')\">x</div>",
    f"<style>@import '{_AWAY}/s.css';</style>",
    "<style>* { display: none !important }</style>",
    f"<style>input[value^='a'] {{ background: url({_AWAY}/a) }}</style>",
    f"<link rel=stylesheet href={_AWAY}/s.css>",
    f"<link rel=prefetch href={_AWAY}/p>",
    f"<link rel=dns-prefetch href=//{_AWAY[8:]}>",
    f"<meta http-equiv=refresh content='0; url={_AWAY}'>",
    "<meta http-equiv=refresh content='0; url=javascript:alert(1)'>",
    '<meta http-equiv=Content-Security-Policy content="default-src *">',
    f"<base href={_AWAY}/>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    f"<iframe src={_AWAY}></iframe>",
    "<object data='javascript:alert(1)'></object>",
    "<object data='data:text/html,<script>alert(1)</script>'></object>",
    "<embed src='javascript:alert(1)'>",
    "<form action='javascript:alert(1)'><button>press</button></form>",
    f"<form action={_AWAY} method=post><input name=form_token><button>Sign in</button></form>",
    "<button formaction='javascript:alert(1)'>press</button>",
    "<a href='javascript:alert(1)'>press</a>",
    "<a href='java\tscript:alert(1)'>press</a>",
    "<a href='&#106;avascript:alert(1)'>press</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>press</a>",
    "<a href='vbscript:msgbox(1)'>press</a>",
    f"<a href={_AWAY} ping={_AWAY}/ping>press</a>",
    "<template><script>alert(1)</script></template>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "<dialog open><form method=dialog><button>OK</button></form></dialog>",
)

BREAKOUTS: tuple[str, ...] = (
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" autofocus onfocus="alert(1)',
    "' autofocus onfocus='alert(1)",
    "` onmouseover=`alert(1)",
    '" style="position: fixed; inset: 0" data-x="',
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</pre></main><script>alert(1)</script>",
    "</form><form action=https://elsewhere.invalid>",
    "--><script>alert(1)</script><!--",
    "--!><img src=x onerror=alert(1)>",
    "]]><script>alert(1)</script>",
    '";alert(1);//',
    "';alert(1);//",
    "${alert(1)}",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "\u2028alert(1)\u2029",
    '{"__proto__": {"polluted": 1}}',
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(1)&#62;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\\x3cscript\\x3ealert(1)\\x3c/script\\x3e",
    "{{ 7 * 7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ visit.store }} ${7*7} #{7*7} <%= 7 * 7 %>",
    "javascript:alert(1)//\"'`--></style></script><img src=x onerror=alert(1)>",
    "<scr\u0130pt>alert(1)</scr\u0130pt>",
    "\u202e<script>alert(1)</script>\u202c",
    "\ufeff<script>alert(1)</script>",
)
"""Out of an attribute, a title, a script, a comment or a template."""

MARKED: tuple[str, ...] = (
    "[press](javascript:alert(1))",
    "[press](JaVaScRiPt:alert(1))",
    "[press](java&#x73;cript:alert(1))",
    "[press](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[press](vbscript:alert(1))",
    '[press](https://elsewhere.invalid "x" onmouseover="alert(1)")',
    f"![pixel]({_AWAY}/pixel.png)",
    f"[![pixel]({_AWAY}/pixel.png)]({_AWAY})",
    f"![a][b]\n\n[b]: {_AWAY}/pixel.png",
    "[a]: javascript:alert(1)\n\n[a]",
    "<javascript:alert(1)>",
    '<https://elsewhere.invalid/"onmouseover="alert(1)>',
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "`<img src=x onerror=alert(1)>`",
    "| <img src=x onerror=alert(1)> |\n|---|\n| <script>alert(1)</script> |",
    "$\\href{javascript:alert(1)}{press}$",
    "# <svg onload=alert(1)>",
)

HOSTILE: tuple[str, ...] = (*ELEMENTS, *BREAKOUTS, *MARKED)

STRANGE_ELEMENTS = """() => {
  const found = [], own = location.origin;
  const leads = (element, name) => new URL(element.getAttribute(name) ?? "", location.href);
  const never = ["img", "iframe", "object", "embed", "video", "audio", "math", "base", "style", "marquee",
    "frame", "applet", "portal", "template", "noscript", "foreignObject", "animate", "set", "use"];
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
    if (tag === "dialog" && element.open) say();
    for (const name of element.getAttributeNames())
      if (name.startsWith("on") || attributes.includes(name)) say();
  }
  return found;
}"""
"""A script that lists what no template of the app holds, so that it can only have come from a text."""
