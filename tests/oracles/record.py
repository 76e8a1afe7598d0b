"""Writes values.json anew: ``python -m tests.oracles.record``, after a comparison was added or taken away."""

import json

from tests.oracles.draws import SEED, drawn
from tests.oracles.test_oracles import COMPARISONS, VALUES, flat


def main() -> None:
    values = {one.name: flat(one.plain(drawn(one.name, one.draw))) for one in COMPARISONS}
    text = json.dumps({"seed": SEED, "values": values}, ensure_ascii=False, indent=0)
    VALUES.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
