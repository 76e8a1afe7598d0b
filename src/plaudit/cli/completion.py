"""``plaudit completion``: what a shell needs to complete verbs, methods and options."""

import argparse
from collections.abc import Sequence
from typing import Any

from plaudit.cli.parser import Parser, RefusedOption, Subparsers

SCRIPTS = {
    "bash": """\
_plaudit() {
    COMPREPLY=($(compgen -W "$(plaudit completion words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _plaudit plaudit
""",
    "zsh": """\
#compdef plaudit
_plaudit() {
    local -a found
    found=(${(f)"$(plaudit completion words -- ${words[2,CURRENT-1]} 2>/dev/null)"})
    compadd -a found
    _files
}
compdef _plaudit plaudit
""",
    "fish": """\
complete -c plaudit -a '(plaudit completion words -- (commandline -opc)[2..] 2>/dev/null)'
""",
}
_EPILOG = """\
bash:  plaudit completion bash > ~/.local/share/bash-completion/completions/plaudit
zsh:   plaudit completion zsh > a folder of $fpath, as _plaudit
fish:  plaudit completion fish > ~/.config/fish/completions/plaudit.fish"""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "completion", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    parser.add_argument("shell", choices=[*SCRIPTS, "words"], help="words: what may follow, for the scripts")
    words = "for words: what stands there already"
    # With a default argparse does not call it required.
    parser.add_argument("typed", nargs="*", default=[], metavar="WORD", help=words)


def run(args: argparse.Namespace) -> int:
    if args.shell in SCRIPTS:
        print(SCRIPTS[args.shell], end="")
        return 0
    from plaudit.cli.main import parser_of

    for word in words_after(parser_of(args.typed[:1]), args.typed):
        print(word)
    return 0


def words_after(parser: Parser, typed: Sequence[str]) -> list[str]:
    """What may follow the typed words: verbs, options, or the choices of the last option."""
    for at, word in enumerate(typed):
        verbs = _verbs(parser)
        if word in verbs:
            parser = verbs[word]
            if parser.add_options_on_use is not None:
                parser.add_options_on_use(parser, typed[at + 1 :])
                parser.add_options_on_use = None
    options = parser._option_string_actions
    last: Any = options.get(typed[-1]) if typed else None
    if last is not None and last.nargs != 0:
        # Nothing where anything may stand: then the shell offers files.
        if last.choices:
            return [str(choice) for choice in last.choices]
        listed = str(last.metavar or "")
        # A setting's choices stand in its metavar alone: {auto,float32}.
        return listed.strip("{}").split(",") if listed.startswith("{") else []
    shown = [
        name
        for name, action in options.items()
        if name.startswith("--") and not isinstance(action, RefusedOption)
    ]
    return [*_verbs(parser), *shown]


def _verbs(parser: Parser) -> dict[str, Any]:
    found: Any = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
    return {} if found is None else dict(found.choices)
