"""What ``--print-config`` says."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from plaudit.cli.main import main


def printed(
    capsys: pytest.CaptureFixture[str], folders: Sequence[str], *words: str
) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["train", *words, *folders, "--print-config"])
    assert not end.value.code
    out, err = capsys.readouterr()
    return yaml.safe_load(out), err
