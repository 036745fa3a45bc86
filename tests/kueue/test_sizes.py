"""Jobs that the real Kueue admits, and edl sizes."""

from __future__ import annotations

import pytest

from tests.kueue.programs import CLUSTER_QUEUES
from tests.kueue.scene import Object, Scene

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")


@pytest.mark.parametrize("reclaim", ["Never", "LowerPriority"])
def test_a_job_borrows_what_is_idle_gives_it_back_to_an_owner_and_borrows_again(here: Scene, reclaim: str) -> None:
    here.queue("blue", 4, reclaim=reclaim)
    here.queue("green", 6, reclaim=reclaim)
    here.submit("train", "blue", 2, bounds=(2, 20))
    here.wait_sizes(train=10)
    before = here.running("train")
    here.submit("owner", "green", 5, elastic=False)
    here.wait_sizes(train=5, owner=5)
    after = here.running("train")
    assert after.items() <= before.items(), "nobody started again"
    here.remove("owner")
    here.wait_sizes(train=10, owner=0)
    assert after.items() <= here.running("train").items()


def test_two_jobs_of_edl_share_and_each_gets_its_own_back(here: Scene) -> None:
    here.queue("blue", 4)
    here.queue("green", 6)
    here.submit("train", "blue", 2, bounds=(2, 20))
    here.wait_sizes(train=10)
    first = here.running("train")
    here.submit("other", "green", 12, bounds=(2, 12))
    here.wait_sizes(train=4, other=6)
    assert here.running("train").items() <= first.items(), "nobody started again"
    here.remove("other")
    here.wait_sizes(train=10)


def test_a_job_that_asks_for_too_much_waits_with_the_size_that_there_is(here: Scene) -> None:
    """Kueue alone would let it wait for ever: it makes no job smaller."""
    here.queue("blue", 6)
    here.submit("fixed", "blue", 2, elastic=False)
    here.wait_sizes(fixed=2)
    here.submit("train", "blue", 20, bounds=(2, 20))
    here.wait_sizes(fixed=2, train=4)
    assert here.job("train")["spec"]["parallelism"] == 4
    assert not here.pending("train"), "no pod is gated"


def test_a_whole_borrower_that_kueue_evicts_runs_again_with_what_is_left(here: Scene) -> None:
    """With reclaim Any Kueue does not wait for edl; alone it would then let the 10 pods wait though 8 fit."""
    here.queue("blue", 4, reclaim="Any")
    here.queue("green", 6, reclaim="Any")
    here.submit("train", "blue", 2, bounds=(2, 20))
    here.wait_sizes(train=10)
    here.submit("owner", "green", 2, elastic=False)
    here.wait_sizes(train=8, owner=2)


def test_nobody_grows_beside_one_who_waits_with_the_same_priority(here: Scene) -> None:
    """Kueue would evict the job that grew, as the newest, for the one that waits."""
    here.queue("blue", 8)
    here.submit("fixed", "blue", 4, elastic=False)
    here.submit("train", "blue", 2, bounds=(2, 4))
    here.wait_sizes(fixed=4, train=4)
    before = here.running("train")
    here.submit("large", "blue", 5, elastic=False)
    here.wait(lambda: here.workloads("large"), "Kueue queues the large job")
    here.bounds("train", 20)
    here.remove("fixed")
    here.wait_sizes(train=3, large=5)
    assert here.running("train").items() <= before.items(), "nobody started again"


def test_a_job_that_grows_evicts_nobody_of_lower_priority(here: Scene) -> None:
    here.queue("blue", 8)
    here.submit("low", "blue", 4, elastic=False, priority="low")
    here.wait_sizes(low=4)
    before = here.running("low")
    here.submit("train", "blue", 2, bounds=(2, 20))
    here.wait_sizes(low=4, train=4)
    assert here.running("low") == before


def test_a_size_that_kueue_does_not_admit_is_taken_back(here: Scene) -> None:
    here.queue("blue", 8)
    here.submit("train", "blue", 2, bounds=(2, 3))
    here.wait_sizes(train=3)
    before = here.running("train")
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}}
    small = {"type": "Container", "max": {"cpu": "500m"}}  # Kueue admits no pods that the namespace does not allow
    here.kube.create({**limits, "spec": {"limits": [small]}}, here.name)
    here.bounds("train", 8)
    here.wait(lambda: here.job("train")["spec"]["parallelism"] > 3, "edl asks for more")
    here.wait(lambda: here.job("train")["spec"]["parallelism"] == 3, "edl takes it back")
    here.wait(lambda: not here.pending("train"), "no pod is gated")
    assert here.running("train") == before
    here.wait(lambda: "Kueue did not admit" in str(here.events("train")), "an event says why")


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ({"requests": {"memory": "1Gi"}}, "resource memory unavailable in ClusterQueue"),
        ({"nodes": {"kubernetes.io/hostname": "kueue-1"}}, "doesn't match node affinity"),
    ],
    ids=["resource", "flavor"],
)
def test_a_job_grows_beside_a_workload_that_kueue_can_never_admit(here: Scene, pods: Object, said: str) -> None:
    here.queue("blue", 4)
    here.queue("green", 6)
    here.flavor("first", {"kubernetes.io/hostname": "kueue-0"}, "blue", "green")
    here.submit("train", "blue", 2, bounds=(2, 8))
    here.wait_sizes(train=8)
    before = here.running("train")
    for name in ("owner", "alike"):
        here.submit(name, "green", 5, elastic=False, **pods)
    here.wait(lambda: said in str([here.workloads("owner"), here.workloads("alike")]), "Kueue says why it waits")
    here.bounds("train", 10)
    here.wait_sizes(train=10, owner=0, alike=0)
    assert before.items() <= here.running("train").items()
    here.submit("honest", "green", 5, elastic=False)
    here.wait_sizes(train=5, honest=5)


def test_nothing_is_kept_for_a_namespace_that_a_queue_excludes_until_it_has_the_label(here: Scene) -> None:
    here.queue("blue", 4)
    here.queue("green", 6)
    spec = {"namespaceSelector": {"matchLabels": {"team": here.name}}}
    here.kube.patch(CLUSTER_QUEUES, here.full("green"), {"spec": spec}, "")
    here.submit("train", "blue", 2, bounds=(2, 20))
    here.wait_sizes(train=10)
    here.submit("owner", "green", 5, elastic=False)
    here.wait(lambda: "doesn't match ClusterQueue selector" in str(here.workloads("owner")), "Kueue says why")
    here.bounds("train", 9)
    here.wait_sizes(train=9, owner=0)
    here.kube.patch("namespaces", here.name, {"metadata": {"labels": {"team": here.name}}}, "")
    here.wait_sizes(train=5, owner=5)


def test_the_plain_job_of_kueue_is_refused_and_left_alone(here: Scene) -> None:
    here.queue("blue", 8)
    here.submit("train", "blue", 2, bounds=(2, 8), elastic=False)
    here.wait(lambda: "NotResized" in here.events("train"), "an event says why")
    assert "starts it anew whenever its size changes" in here.events("train")["NotResized"]
    here.wait_sizes(train=2)
    assert here.job("train")["spec"]["parallelism"] == 2


def test_kueue_that_is_down_delays_a_size_and_loses_nothing(here: Scene) -> None:
    here.queue("blue", 8)
    here.submit("fixed", "blue", 4, elastic=False)
    here.submit("train", "blue", 2, bounds=(2, 8))
    here.wait_sizes(fixed=4, train=4)
    before = here.running("train")
    here.cluster.kueue.stop()
    here.remove("fixed")
    here.wait_sizes(fixed=0, train=4)
    here.cluster.kueue.start()
    here.wait_sizes(train=8)
    assert before.items() <= here.running("train").items()
