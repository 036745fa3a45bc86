"""edl and kube-scheduler agree on which nodes a pod may run, under random rules.

`EDL_TEST_RULE_CASES` says how many cases are tried, `EDL_TEST_RULE_SEED` which, and `EDL_TEST_RULE_FIRST` the number
of the first one. A running pod never has a lower priority than one that waits and may preempt: whom kube-scheduler
preempts is tried elsewhere.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.rules.batches import Batch
from tests.e2e.rules.clusters import prerequisites
from tests.e2e.rules.verdicts import Verdicts

pytestmark = pytest.mark.cluster("kube-scheduler judges the rules between pods")
CASES, SEED = int(os.environ.get("EDL_TEST_RULE_CASES", "120")), int(os.environ.get("EDL_TEST_RULE_SEED", "1"))
FIRST = int(os.environ.get("EDL_TEST_RULE_FIRST", "0"))
TOGETHER = 200


@pytest.mark.timeout(9000)
def test_kube_scheduler_places_what_the_plan_places_and_only_where_the_plan_lets_it(
    control_plane: Callable[..., ControlPlane],
) -> None:
    kube = control_plane(nodes=(), settings=Settings(node_grace_s=9000)).kube
    for body in prerequisites():
        kube.create(body)
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with Verdicts(kube) as verdicts:
        for number in range(FIRST // TOGETHER, (FIRST + CASES - 1) // TOGETHER + 1):
            first = number * TOGETHER
            cases = range(max(first, FIRST), min(first + TOGETHER, FIRST + CASES))
            with Batch(kube, verdicts, SEED, number, cases) as batch:
                batch.prepare()
                found = batch.judge()
            wrong += found
            counts += batch.counts()
            so_far = f"{time.monotonic() - began:.0f} s, cases to {cases.stop}: {len(wrong)} differ"
            print(so_far, *found, sep="\n", flush=True)
    print(f"{CASES} cases, {len(wrong)} differ; {dict(sorted(counts.items()))}")
    assert not wrong, "\n".join(wrong)
