"""One run on a disk that fills up at four places, then has room; prints what was said as JSON.

usage: run_on_small_disk.py TOY DISK KEPT; KEPT is where the finished run is copied to.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from tests.engine.test_run_faults_disk import OPTIONS
from tests.engine.toy import Toy
from tests.engine.toy_command import Done, plaudit, sft


def room_for(disk: Path, free: int, command: list[object]) -> Done:
    """Run the command when so many bytes are free."""
    filler = disk / "filler"
    status = os.statvfs(disk)
    filler.write_bytes(b"x" * max(0, status.f_bavail * status.f_frsize - free))
    done = plaudit(*command)
    filler.unlink()
    return done


def main(toy: Path, disk: Path, kept: Path) -> None:
    """A checkpoint takes 380 kB; the model 118 kB of weights and then 30 kB of small files."""
    command = sft(Toy(model=toy / "base", data=toy / "rows.jsonl"), disk / "run", *OPTIONS)
    ends = [room_for(disk, free, command) for free in (0, 200_000, 480_000, 138_000)]
    half_written = [path.name for path in disk.rglob("*.partial")]
    ends.append(plaudit(*command))
    shutil.copytree(disk / "run", kept)
    said = [end.err for end in ends[:-1]]
    print(json.dumps({"full": said, "codes": [end.code for end in ends], "half_written": half_written}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
