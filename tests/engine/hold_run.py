"""Opens a run folder, says so, keeps it until its input ends. usage: hold_run.py FOLDER [orphan|killed]"""

import os
import signal
import sys
from pathlib import Path

from plaudit.engine.run_folder import open_run_folder
from plaudit.errors import UserError


def main(folder: Path, end: str) -> None:
    try:
        with open_run_folder(folder, config={"seed": 0}):
            print("held", flush=True)
            if end == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if end == "orphan" and (child := os.fork()):
                print(child, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            sys.stdin.read()
    except UserError as error:
        print(error, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
