"""Which counts of trainers the production controller chooses beside serving that comes in waves, in virtual time.

    python -m benchmarks.serving_waves     # the counts of three jobs: 1 to 4 trainers, always 1, always 4

Three nodes of 2 cpu hold serving and one job; a serving pod and a trainer request 1 cpu each. Serving goes
1 -> 3 -> 5 -> 3 -> 1 pods, two minutes each, again and again. So there is capacity for 4 trainers, 3, 1, 3 and 4. The
controller, the life cycle and `decide` are those of a cluster (`edl.sim`); serving comes first for each of the jobs.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from edl.sim.scenario import Scenario
from edl.sim.simulation import simulate

CORES, LEVELS, LEVEL_S = 6, (1, 3, 5, 3, 1), 120.0
FEWEST, MOST = 1, 4
_TOGETHER_S = 10.0


class Count(NamedTuple):
    """How many trainers run from a moment on."""

    at_s: float
    trainers: int


def counts(fewest: int, most: int, waves: int) -> tuple[Count, ...]:
    """The counts of a job over so many waves; changes within 10 s are one, at its end.

    Args:
        fewest: min-instance of the job.
        most: its max-instance.
        waves: each takes ten minutes.

    Raises:
        RuntimeError: the controller could not do what it wanted.
    """
    run = simulate(_scenario(fewest, most, waves), "maxmin", seed=0)
    if run.problems:
        raise RuntimeError(run.problems[0])
    (changes,) = run.trainers.values()
    ends = itertools.pairwise([*changes, (float("inf"), 0)])
    return tuple(Count(*change) for change, following in ends if following[0] - change[0] > _TOGETHER_S)


def _scenario(fewest: int, most: int, waves: int) -> Scenario:
    one = {"cpu": 1, "memory": "1Gi"}
    levels = [(number * LEVEL_S, pods) for number, pods in enumerate(LEVELS * waves)]
    short = {"trainer": (1, 3), "serving": (1, 3)}
    return Scenario.model_validate(
        {
            "name": "waves",
            "duration_s": LEVEL_S * len(levels),
            "nodes": [{"name": "n", "count": CORES // 2, "resources": {"cpu": 2, "memory": "8Gi"}}],
            "jobs": [{"name": "job", "min": fewest, "max": most, "trainer": one, "throughput": [(1, 1), (4, 4)]}],
            "serving": [{"name": "web", "resources": one, "replicas": levels}],
            "latency": {"start_s": short, "stop_s": short},
        }
    )


def main() -> None:
    """Print the counts of each job over two waves."""
    for fewest, most in ((FEWEST, MOST), (FEWEST, FEWEST), (MOST, MOST)):
        changes = ", ".join(f"{trainers} from {at_s:.0f} s" for at_s, trainers in counts(fewest, most, 2))
        print(f"{fewest} to {most} trainers: {changes}")


if __name__ == "__main__":
    main()
