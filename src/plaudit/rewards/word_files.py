"""The files and folders behind the words of rewards and judges: ``jury:jury.yaml``, ``judge:model:runs/sft``,
``mine.py:polite``, ``…,rubric=aspects.yaml``, and whatever such a file names in its turn.

So a word can be read from any folder, and whoever rests on its meaning knows when that has changed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from plaudit.errors import UserError
from plaudit.rewards import kinds
from plaudit.rewards.combine.by_name import member_words


def word_pieces(word: str) -> list[str | Path]:
    """A word cut into its paths and the text around them; put together they are the word again.

    >>> word_pieces("judge:jury:own/jury.yaml,how=points")
    ['judge:jury:', PosixPath('own/jury.yaml'), ',how=points']
    >>> word_pieces("mine.py:polite"), word_pieces("length:1-20")
    ([PosixPath('mine.py'), ':polite'], ['length:1-20'])
    """
    kind, colon, rest = word.partition(":")
    if kinds.is_rule(word):
        return [word]
    if word.startswith(kinds.JUDGE_REWARD):
        return _joined([kinds.JUDGE_REWARD, *word_pieces(rest)])
    if kinds.is_judge_word(word):
        return _joined(kinds.judge_kind(word).pieces(word))
    if colon and kind in kinds.COMBINED_WORDS:
        return [f"{kind}:", Path(rest)]
    if kinds.names_function(word):
        return function_pieces(word)
    return [word] if kinds.is_reward_word(word) or "://" in word else [Path(word)]


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
    while word.startswith(kinds.JUDGE_REWARD):
        word = word.removeprefix(kinds.JUDGE_REWARD)
    kind, _, rest = word.partition(":")
    if kinds.is_judge_word(word):
        return [*kinds.judge_kind(word).members(word)]
    if kind in kinds.COMBINED_WORDS and rest:
        return [word_from(member, Path(rest).parent) for member in member_words(word)]
    return []


def refuse_circle(word: str, trail: tuple[str, ...] = ()) -> None:
    """Refuse files that name each other in a circle: what they mean together has no end."""
    absolute = word_from(word, Path.cwd()).removeprefix(kinds.JUDGE_REWARD).partition(",")[0]
    if absolute in trail:
        path = " → ".join([*trail[trail.index(absolute) :], absolute])
        raise UserError(f"{path}: these files name each other in a circle; take one of them out")
    for member in named_words(word):
        refuse_circle(member, (*trail, absolute))


def first_path(word: str) -> Path | None:
    """The first file or folder that a word names and that is there."""
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


def function_pieces(word: str) -> list[str | Path]:
    """The word of a function, with its file where it names one."""
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
