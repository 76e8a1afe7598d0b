"""The kinds of task: a file each, and a line here."""

from plaudit.collect.kinds import attack, pair, rank, rate, steps, talk, write
from plaudit.collect.kinds.kind import Kind

USUAL = pair.KIND.name
"""The kind of task where nobody names one."""
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (pair.KIND, rank.KIND, rate.KIND, write.KIND, steps.KIND, talk.KIND, attack.KIND)
}
