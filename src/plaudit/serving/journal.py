"""What servers have answered, written before it is used: a run that was killed asks for none of it again.

An answer is found by the weights that drew it (their root) and by the question, so that nothing hangs on the
order in which answers came, or on who asked. Each rank writes its own; all are read.
"""

import json
import os
import shutil
import struct
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np

from plaudit.serving.server import DrawnTokens, Question

_HEAD = struct.Struct("<I16s")
"""How many bytes follow, and the key."""
_ANSWER = struct.Struct("<?BBI")
"""Whether it ended, the bytes of a token, the bytes of a log-prob, and how many tokens."""
_CHECK = 8
"""Bytes of the hash at the end of a record."""


def key_of(root: str, question: Question) -> bytes:
    return blake2b(f"{root} {json.dumps(question.body())}".encode(), digest_size=16).digest()


def packed(answers: Sequence[DrawnTokens]) -> bytes:
    """Answers in few bytes, from which they come back to the bit."""
    parts: list[bytes] = []
    for answer in answers:
        ids = np.array(answer.ids, dtype="<u4")
        ids = ids.astype("<u2") if ids.max(initial=0) < 2**16 else ids
        logp = np.array(answer.logp, dtype="<f8")
        # What a server computes in float32 is no more than that, however its JSON writes it.
        narrow = logp.astype("<f4")
        logp = narrow if (narrow.astype("<f8") == logp).all() else logp
        parts.append(_ANSWER.pack(answer.ended, ids.itemsize, logp.itemsize, len(ids)))
        parts += [ids.tobytes(), logp.tobytes()]
    return b"".join(parts)


def unpacked(content: bytes) -> list[DrawnTokens]:
    answers: list[DrawnTokens] = []
    place = 0
    while place < len(content):
        ended, id_bytes, logp_bytes, tokens = _ANSWER.unpack_from(content, place)
        place += _ANSWER.size
        ids = np.frombuffer(content, f"<u{id_bytes}", tokens, place)
        place += tokens * id_bytes
        logp = np.frombuffer(content, f"<f{logp_bytes}", tokens, place)
        place += tokens * logp_bytes
        answers.append(DrawnTokens(ids=tuple(ids.tolist()), logp=tuple(logp.tolist()), ended=ended))
    return answers


class Journal:
    """The answers of a run's last versions, a file for each version and rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        """Read what lies in the folder; what was torn off at the end of a file is not believed."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._rank = rank
        self._file: BinaryIO | None = None
        self._passed: list[Path] = []
        self._obsolete: list[Path] = []
        self._contents: dict[bytes, bytes] = {}
        self.reused = 0
        """How many questions were answered from here."""
        for path in sorted(folder.glob("*.journal")):
            self._read(path)

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        place = 0
        while place + _HEAD.size <= len(content):
            size, key = _HEAD.unpack_from(content, place)
            end = place + _HEAD.size + size + _CHECK
            if content[end - _CHECK : end] != _hash(content[place : end - _CHECK]):
                break
            self._contents[key] = content[place + _HEAD.size : end - _CHECK]
            place = end

    def begin(self, root: str) -> None:
        """Write into another file from now on: answers of the weights with this root."""
        if self._file is not None:
            self._passed.append(Path(self._file.name))
        self.close()
        # Behind what a killed process may have torn off, nothing could be read.
        number = len(list(self.folder.glob(f"{root}-{self._rank}-*.journal")))
        self._file = (self.folder / f"{root}-{self._rank}-{number}.journal").open("ab")

    def answers_to(self, key: bytes) -> list[DrawnTokens] | None:
        content = self._contents.get(key)
        if content is None:
            return None
        self.reused += 1
        return unpacked(content)

    def write(self, key: bytes, answers: Sequence[DrawnTokens]) -> None:
        """Hand a record to the operating system; `sync` puts it on the disk."""
        assert self._file is not None
        content = packed(answers)
        record = _HEAD.pack(len(content), key) + content
        self._file.write(record + _hash(record))
        self._file.flush()

    def sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())

    def checkpoint(self) -> None:
        """A checkpoint is written: what was obsolete with the one before is removed, and marked anew."""
        for path in self._obsolete:
            path.unlink(missing_ok=True)
        # Answers of weights that have moved on; a run that goes on from the checkpoint before wants them.
        self._obsolete, self._passed = self._passed, []

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECK).digest()
