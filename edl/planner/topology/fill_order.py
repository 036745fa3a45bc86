"""In which order the domains of a tree are filled, so that as few as possible are used on each level.

Of the domains that hold the rest, the one that needs fewest of the narrowest domains for it comes first, then the one
with least to spare; if none holds it, the largest. The same is decided again inside of each domain for the next
narrower level. Domains in which pods of the job run come before all others.

Source: the rule is best fit, as Kueue's topology-aware scheduling chooses domains (BestFit,
https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from edl.model.topology import Path


def fill_order(slots: Mapping[Path, int], need: int, held: Mapping[Path, int] | None = None) -> list[Path]:
    """Sort the narrowest domains of a tree, the first to fill first.

    Args:
        slots: how many pods each of them holds, by path; all paths have one length.
        need: the pods to place, beside those that run.
        held: pods that run in each of them; none by default.
    """
    return _sorted(sorted(slots), 0, slots, need, held or {})


def used_domains(order: Sequence[Path], slots: Mapping[Path, int], need: int) -> list[Path]:
    """The first domains of an order that together hold a number of pods; all domains if they do not suffice."""
    found: list[Path] = []
    for path in order:
        if need <= 0:
            break
        if slots[path] > 0:
            found.append(path)
            need -= slots[path]
    return found


def count_domains(paths: Sequence[Path]) -> tuple[int, ...]:
    """How many domains of each level some paths use, the widest level first."""
    depth = len(paths[0]) if paths else 0
    return tuple(len({path[: level + 1] for path in paths}) for level in range(depth))


def _sorted(
    paths: list[Path], level: int, slots: Mapping[Path, int], need: int, held: Mapping[Path, int]
) -> list[Path]:
    """The paths below one domain of the next wider level."""
    if not paths or level == len(paths[0]):
        return paths
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        groups[path[level]].append(path)
    total = {name: sum(slots[path] for path in group) for name, group in groups.items()}
    mine = {name: sum(held.get(path, 0) for path in group) for name, group in groups.items()}

    def below(name: str, need: int) -> list[Path]:
        return _sorted(groups[name], level + 1, slots, max(0, min(need, total[name])), held)

    found: list[Path] = []
    for name in sorted((name for name in total if mine[name]), key=lambda name: (-mine[name], name)):
        found += below(name, need)
        need -= total[name]
    largest = sorted((name for name in total if not mine[name]), key=lambda name: (-total[name], name))
    while largest and total[largest[0]] < need:
        found += below(largest[0], need)
        need -= total[largest.pop(0)]
    fitting = {name: below(name, need) for name in largest if total[name] >= need > 0}
    if fitting:
        best = min(fitting, key=lambda name: (len(used_domains(fitting[name], slots, need)), total[name], name))
        found += fitting[best]
        largest.remove(best)
    return found + [path for name in largest for path in below(name, 0)]
