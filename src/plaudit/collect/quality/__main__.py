"""``python -m plaudit.collect.quality``: compute one report and keep it; stdin says which, as JSON."""

import gc
import json
import sys
from contextlib import closing

from plaudit.collect.quality.cache import keep_report
from plaudit.collect.quality.report import quality
from plaudit.collect.quality.result import quality_to_dict
from plaudit.collect.store import open_store
from plaudit.errors import UserError


def main() -> int:
    """Compute, keep, and say in a line what went wrong."""
    wanted = json.load(sys.stdin)
    # Nothing is dropped before the end, and looking for it among many labels takes its time.
    gc.disable()
    try:
        with closing(open_store(wanted["store"])) as store:
            keep_report(store, quality_to_dict(quality(store, wanted["project"])))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
