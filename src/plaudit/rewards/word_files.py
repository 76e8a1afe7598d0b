"""The files and folders behind the words of rewards and judges: ``jury:jury.yaml``, ``judge:model:runs/sft``,
``mine.py:polite``, ``…,rubric=aspects.yaml``, and whatever such a file names in its turn.

So a word can be read from any folder, and whoever rests on its meaning knows when that has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from plaudit.errors import UserError
from plaudit.feedback.judges.judge_reward import JUDGE_REWARD
from plaudit.feedback.judges.jury import read_jury
from plaudit.feedback.judges.words import CALL, JURY, SERVER, SPREAD, asks_a_model, parse_judge_word
from plaudit.rewards.combine.by_name import COMBINED_WORDS, member_words
from plaudit.rewards.registry import is_rule, names_function

_FILE_SETTINGS = ("rubric", "constitution", "preamble")
"""Settings of a judge's word that name a file."""
_OWN_CONSTITUTION = "ours"


def word_pieces(word: str) -> list[str | Path]:
    """A word cut into its paths and the text around them; put together they are the word again.

    >>> word_pieces("judge:jury:own/jury.yaml,how=points")
    ['judge:jury:', PosixPath('own/jury.yaml'), ',how=points']
    >>> word_pieces("mine.py:polite"), word_pieces("length:1-20")
    ([PosixPath('mine.py'), ':polite'], ['length:1-20'])
    """
    kind, colon, rest = word.partition(":")
    if word.startswith(JUDGE_REWARD):
        return _joined([JUDGE_REWARD, *word_pieces(rest)])
    if asks_a_model(word):
        return _joined(list(_judge_pieces(word)))
    if colon and kind in COMBINED_WORDS:
        return [f"{kind}:", Path(rest)]
    if names_function(word):
        return _function_pieces(word)
    return [word] if is_rule(word) or "://" in word else [Path(word)]


def word_from(word: str, folder: Path) -> str:
    """The word with every path that is found from this folder as it is found from the present one.

    >>> word_from("jury:none.yaml", Path("/")), word_from("model:usr,how=points", Path("/"))
    ('jury:none.yaml', 'model:/usr,how=points')
    """

    def from_folder(piece: str | Path) -> str:
        is_there = isinstance(piece, Path) and (folder / piece).exists()
        return str(folder / piece if is_there else piece)

    return "".join(map(from_folder, word_pieces(word)))


def named_words(word: str) -> list[str]:
    """The words in the file of a jury, a spread or a combination; paths are looked for beside it first."""
    while word.startswith(JUDGE_REWARD):
        word = word.removeprefix(JUDGE_REWARD)
    kind, _, rest = word.partition(":")
    if word.startswith((JURY, SPREAD)):
        path = Path(parse_judge_word(word).place.partition(":")[2])
        words = [member.judge for member in read_jury(path).members]
    elif kind in COMBINED_WORDS and rest:
        path, words = Path(rest), member_words(word)
    else:
        return []
    return [word_from(member, path.parent) for member in words]


def refuse_circle(word: str, trail: tuple[str, ...] = ()) -> None:
    """Refuse files that name each other in a circle: what they mean together has no end."""
    absolute = word_from(word, Path.cwd()).removeprefix(JUDGE_REWARD).partition(",")[0]
    if absolute in trail:
        path = " → ".join([*trail[trail.index(absolute) :], absolute])
        raise UserError(f"{path}: these files name each other in a circle; take one of them out")
    for member in named_words(word):
        refuse_circle(member, (*trail, absolute))


def first_path(word: str) -> Path | None:
    """The first file or folder that a word names and that is there.

    >>> first_path("openai:http://127.0.0.1:8000/v1#small") is None
    True
    """
    paths = (piece for piece in word_pieces(word) if isinstance(piece, Path))
    return next((path for path in paths if path.exists()), None)


def content_hash(word: str, hash_of: Callable[[Path], str]) -> str:
    """The hash of what a word means: of its text, with the contents of what it names in place of paths.

    hash_of: that of a file or folder.
    """
    refuse_circle(word)
    digest = hashlib.sha256()
    for piece in word_pieces(word):
        content = hash_of(piece) if isinstance(piece, Path) and piece.exists() else piece
        digest.update(f"{content}\0".encode())
    for member in named_words(word):
        digest.update(f"{content_hash(member, hash_of)}\0".encode())
    return digest.hexdigest()


def _judge_pieces(word: str) -> Iterator[str | Path]:
    parsed = parse_judge_word(word)
    kind, _, place = parsed.place.partition(":")
    yield f"{kind}:"
    if word.startswith(CALL):
        yield from _function_pieces(place)
    else:
        # A stage of a pipeline is named by a sign and no path.
        yield place if word.startswith(SERVER) or place.startswith("$") else Path(place)
    for name, value in parsed.settings.items():
        is_file = name.replace("-", "_") in _FILE_SETTINGS and value != _OWN_CONSTITUTION
        yield f",{name}="
        yield Path(value) if is_file else value


def _function_pieces(word: str) -> list[str | Path]:
    module, _, name = word.rpartition(":")
    return [Path(module), f":{name}"] if module.endswith(".py") else [word]


def _joined(pieces: list[str | Path]) -> list[str | Path]:
    found = list[str | Path]()
    for piece in pieces:
        if found and isinstance(piece, str) and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found
