"""Records docs/kueue-sessions.md: a Job of edl beside Kueue, while an owner comes and leaves, as kubectl shows it.

Run it with `make kueue-sessions`. As for docs/kubectl.md, a test compares the shape of the document with that of a
new recording; see `tests.e2e.record_sessions`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.e2e import record_sessions
from tests.e2e.control_plane.build import ensure_binaries, ensure_kueue
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.record_sessions import Notebook
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT
from tests.kueue.programs import kueue_on
from tests.kueue.scene import NODES, Cluster, owner_of
from tests.worlds.kueue.objects import API

DOCUMENT = ROOT / "docs" / "kueue-sessions.md"
TRAIN, OWNER = "train", "report"
GROWN, BESIDE = 8, 5
"""Pods of the job in both quotas, and beside the three of the owner."""

HEAD = """\
# Sessions beside Kueue

Recorded by `make kueue-sessions` on a real API server with Kueue, its webhooks, and the Job controller of Kubernetes.
kwok simulates the containers, so nothing trains there. The output is unchanged; only the waits between commands are
left out. [Size jobs that Kueue admits](how-to/kueue.md) explains what happens.
"""

QUEUE = """\
apiVersion: {api}
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohortName: all
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {{name: a, resources: [{{name: cpu, nominalQuota: 4}}]}}
  preemption: {{reclaimWithinCohort: Any}}
---
apiVersion: {api}
kind: LocalQueue
metadata: {{name: {name}, namespace: default}}
spec: {{clusterQueue: {name}}}
"""
QUEUES = "---\n".join(QUEUE.format(api=API, name=name) for name in ("blue", "green"))

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  annotations:
    paddlepaddle.org/elastic: "true"
    paddlepaddle.org/min-instance: "2"
    paddlepaddle.org/max-instance: "16"
    paddlepaddle.org/kueue-queue: blue
spec:
  suspend: true
  parallelism: 2
  backoffLimit: 100
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: train, image: example/train, resources: {requests: {cpu: "1"}}}
"""

REPORT = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: report
  labels: {kueue.x-k8s.io/queue-name: green}
spec:
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: report, image: example/report, resources: {requests: {cpu: "1"}}}
"""

JOBS = "kubectl get jobs -o custom-columns=NAME:.metadata.name,SUSPEND:.spec.suspend,PODS:.spec.parallelism"
_WORKLOADS = "kubectl get workloads --sort-by=.metadata.name"
_WORKLOAD = re.compile(r"\btrain-[0-9a-f]{8}(-\d+)?")
_ON_NODE = re.compile(r"^  kueue-\d: \d+ stay\n", re.MULTILINE)
_OF_KUEUE = re.compile(r"\b(job-report)-[0-9a-f]{5}\b")


def record(cluster: Cluster) -> str:
    """Run all sessions and return the document."""
    book = Notebook(cluster.world, HEAD)
    _grow(cluster, book)
    before = pods(cluster, TRAIN)
    _give_back(cluster, book)
    assert pods(cluster, TRAIN) < before, "nobody started again"
    _grow_again(cluster, book)
    _close(cluster, book)
    return book.text


def pods(cluster: Cluster, job: str) -> set[str]:
    """The UIDs of the pods of a Job that run and are not being deleted."""
    found = cluster.kube.list("pods", "default", labels=f"batch.kubernetes.io/job-name={job}")
    return {pod["metadata"]["uid"] for pod in found if facts.is_running(pod)}


def _grow(cluster: Cluster, book: Notebook) -> None:
    book.title("A job takes what is idle")
    book.say("Two ClusterQueues of 4 cores lend to each other.")
    book.run("kubectl create -f -", stdin=QUEUES)
    book.say("The job names its queue in an annotation of edl, and is created suspended:")
    book.run("kubectl create -f -", stdin=JOB)
    book.until(lambda: _has(cluster, GROWN), "the job has both quotas")
    book.run(JOBS)
    book.say("Kueue has admitted one Workload for its minimum of two pods, and one for each further pod:")
    book.run(_WORKLOADS)
    book.run("edl explain job.batch/train")


def _give_back(cluster: Cluster, book: Notebook) -> None:
    book.title("An owner comes, and the surplus goes")
    book.say("A plain Job of three pods asks for quota of its own ClusterQueue, which the first job borrows:")
    book.run("kubectl create -f -", stdin=REPORT)
    book.until(lambda: len(pods(cluster, OWNER)) == 3 and _has(cluster, BESIDE), "the owner runs")
    book.run(JOBS)
    book.say(
        "Kueue has evicted as many Workloads as the owner needs, and edl has deleted them. The other pods run on:"
    )
    book.run(_WORKLOADS)
    book.run("edl explain job.batch/train")


def _grow_again(cluster: Cluster, book: Notebook) -> None:
    book.title("The owner leaves")
    book.run(f"kubectl delete job {OWNER}")
    book.until(lambda: _has(cluster, GROWN), "the job has both quotas again")
    book.run(JOBS)
    book.run(_WORKLOADS)


def _close(cluster: Cluster, book: Notebook) -> None:
    book.title("The job is deleted, and its Workloads with it")
    book.run(f"kubectl delete job {TRAIN}")
    kube = cluster.kube
    book.until(lambda: not kube.list("workloads.kueue.x-k8s.io", "default"), "no Workload is left")
    book.run("kubectl get workloads")
    for queue in ("blue", "green"):
        kube.delete("localqueues.kueue.x-k8s.io", queue, "default")
        kube.delete("clusterqueues.kueue.x-k8s.io", queue, "")


def _has(cluster: Cluster, count: int) -> bool:
    """True if the job has so many pods, all run, and each above the second has a Workload that is admitted."""
    found = [one for one in cluster.kube.list("workloads.kueue.x-k8s.io", "default") if owner_of(one) == TRAIN]
    admitted = [one for one in found if one.get("status", {}).get("admission")]
    return len(pods(cluster, TRAIN)) == count and len(found) == len(admitted) == count - 1


def shape(document: str) -> list[str]:
    """A document without what differs between runs.

    That is also which of equal Workloads Kueue has evicted, and which node holds how many pods.
    """
    named = _OF_KUEUE.sub(r"\1-ID", _WORKLOAD.sub("train-UID", document))
    return record_sessions.shape(_ON_NODE.sub("", named))


def main() -> int:
    """Record the document."""
    ensure_binaries()
    ensure_kueue()
    with (
        tempfile.TemporaryDirectory(prefix="edl-sessions-") as folder,
        ControlPlane.start(Path(folder), nodes=NODES) as plane,
        kueue_on(plane) as kueue,
        Cluster(plane, kueue) as cluster,
    ):
        DOCUMENT.write_text(record(cluster), encoding="utf-8")
    print(f"recorded {DOCUMENT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
