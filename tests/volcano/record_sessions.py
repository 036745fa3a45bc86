"""Records docs/volcano-sessions.md: the manifests of the articles, applied as published, as kubectl shows them.

Run it with `make volcano-sessions`. As for docs/kubectl.md, a test compares the shape of the document with that of a
new recording; see `tests.e2e.record_sessions`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e import record_sessions
from tests.e2e.control_plane.build import ensure_binaries, ensure_volcano
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.record_sessions import Notebook
from tests.e2e.worlds.harness import ROOT
from tests.e2e.worlds.jobs import serving
from tests.volcano.programs import volcano_on
from tests.volcano.scene import Scene, machine

Object = dict[str, Any]
DOCUMENT = ROOT / "docs" / "volcano-sessions.md"
FOLDER = "tests/volcano/manifests"
CTR, TALK = "ctr-volcano", "paddle-cluster-job-1"
FIRST, MORE = machine("small-0", 3), [machine(f"small-{number}", 4) for number in (1, 2)]
GROWN, LEFT = 8, 5
"""Trainers of the CTR job beside its two pservers in 11 cpus: at its maximum, and beside four serving pods."""

HEAD = """\
# Sessions beside Volcano

Recorded by `make volcano-sessions` on a real API server with Volcano's scheduler, controllers and admission, and the
Job controller of Kubernetes. kwok simulates the containers, so nothing trains there. The manifests are those of the
articles, unchanged: `tests/volcano/manifests`. The output is unchanged too; only the waits between commands are left
out. [Beside Volcano](volcano.md) explains what happens.
"""

CLAIM = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: nfs}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  hostPath: {path: /srv/nfs}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: nfs}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: nfs
  resources: {requests: {storage: 10Gi}}
"""

PODS = f"kubectl get pods -l volcano.sh/job-name={CTR}"
_STATE = "custom-columns=NAME:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName"
_WHY = "-o jsonpath={.items[0].status.conditions[-1].message}"
_RESTARTS = re.compile(r"^Running,\d+$", re.MULTILINE)
_ON_NODE = re.compile(r"^  small-\d: \d+ stay\n", re.MULTILINE)
_OVERCOMMIT = re.compile(r"^  pods on small-\d may use \d+ % of its (\w+) by their limits \(.*\);", re.MULTILINE)
_POD = re.compile(rf"\b({TALK})-[a-z0-9]{{5}}\b")


def record(here: Scene) -> str:
    """Run all sessions and return the document."""
    world = here.with_edl()
    book = Notebook(world, HEAD)
    _start_whole(here, book)
    _restart_whole(here, book)
    with world.controller:
        _resize(here, book)
        _complete(here, book)
        _talk(here, book)
    return book.text


def _start_whole(here: Scene, book: Notebook) -> None:
    book.title("All four pods start, or none")
    book.say("The only node has 3 cpus, and the four pods ask for one each.")
    book.run(f"kubectl apply -f {FOLDER}/{CTR}.yaml")
    book.until(lambda: "4 minAvailable" in here.waits_for(CTR), "the PodGroup waits")
    book.run("kubectl get vcjob")
    book.run(PODS)
    book.say("The PodGroup says why it waits:")
    book.run(f"kubectl get podgroups {_WHY}")
    book.say("Two nodes of 4 cpus come:")
    here.plane.add_nodes(MORE)
    book.until(lambda: len(here.running(CTR)) == 4, "all four run")
    book.until(lambda: _has(here, 2), "the job says so")
    book.run("kubectl get vcjob")
    book.run(PODS)


def _restart_whole(here: Scene, book: Notebook) -> None:
    book.title("One pod is lost, and all four start again")
    before = set(here.running(CTR).values())
    book.run(f"kubectl delete pod {CTR}-trainer-1")

    def is_new() -> bool:
        running = here.running(CTR)
        return _has(here, 2) and not before & set(running.values())

    book.until(is_new, "all four are new")
    book.run(PODS)
    book.run(f"kubectl get vcjob {CTR} -o jsonpath={{.status.state.phase}},{{.status.retryCount}}")


def _resize(here: Scene, book: Notebook) -> None:
    book.title("edl resizes the job")
    asks = " ".join(f"paddlepaddle.org/{one}" for one in ("elastic=true", "min-instance=1", "max-instance=8"))
    book.run(f"kubectl annotate vcjob {CTR} {asks}")
    restarts, before = here.restarts(CTR), here.running(CTR)
    book.until(lambda: _has(here, GROWN), "the job has its maximum")
    assert before.items() <= here.running(CTR).items(), "nobody started again"
    book.run("kubectl get vcjob")
    book.run(PODS)
    book.say("Four serving pods of 1 cpu come, and one cpu is free:")
    here.kube.create(serving(cpu="1", memory="1Gi"))
    book.run("kubectl scale deployment web --replicas=4")
    book.until(lambda: book.here.ready_serving() == 4, "serving is ready")
    book.until(lambda: _has(here, LEFT), "the job has given capacity")
    book.run("kubectl get vcjob")
    book.run(PODS)
    assert here.restarts(CTR) == restarts, "a resize restarts nothing"
    book.say("Volcano has restarted nothing: it counts what it counted before.")
    book.run(f"kubectl get vcjob {CTR} -o jsonpath={{.status.state.phase}},{{.status.retryCount}}")
    book.run(f"edl explain job.batch.volcano.sh/{CTR}")


def _complete(here: Scene, book: Notebook) -> None:
    book.title("The trainers complete, and the pservers go")

    def is_completed() -> bool:
        for name in here.running(f"{CTR}-trainer"):
            here.kube.annotate("pods", name, exit_code="0")
        return here.phase(CTR) == "Completed" and not here.pods(f"{CTR}-pserver")

    book.until(is_completed, "the job is completed")
    book.run("kubectl get vcjob")
    book.run(PODS)
    book.run(f"kubectl delete vcjob {CTR}")
    book.run("kubectl delete deployment web")
    book.until(lambda: not here.pods(), "all pods are gone")


def _talk(here: Scene, book: Notebook) -> None:
    book.title("The Job of the talk on PaddlePaddle and Kubernetes")
    book.say("Its pods mount the claim `nfs`, and take host ports, so there is one on each node.")
    book.run("kubectl create -f -", stdin=CLAIM)
    book.run(f"kubectl apply -f {FOLDER}/{TALK}.yaml")
    book.until(lambda: len(here.running(TALK)) == 3, "three pods run")
    book.run("kubectl get jobs.batch")
    book.run(f"kubectl get pods --sort-by=.spec.nodeName -o {_STATE}")
    book.say("Its pods request nothing, so edl refuses to resize it, and says so on the Job:")
    asks = " ".join(f"paddlepaddle.org/{one}" for one in ("elastic=true", "min-instance=1", "max-instance=3"))
    book.run(f"kubectl annotate jobs.batch {TALK} {asks}")
    about = f"involvedObject.name={TALK},reason=NotResized"
    book.until(lambda: here.kube.list("events", "default", fields=about), "an event says why")
    book.run(f"kubectl get events --field-selector {about} --no-headers -o custom-columns=:.reason,:.message")

    def is_complete() -> bool:
        for name in here.running(TALK):
            here.kube.annotate("pods", name, exit_code="0")
        conditions = (here.kube.get("jobs.batch", TALK).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)

    book.until(is_complete, "the Job is complete")
    book.run("kubectl get jobs.batch")


def _has(here: Scene, trainers: int) -> bool:
    """True if the job has so many trainers and its pservers, all run, no other is left, and its status says so."""
    pods = trainers + 2
    status = here.job(CTR).get("status") or {}
    counted = status.get("running") == pods and here.phase(CTR) == "Running"
    return counted and len(here.pods(CTR)) == len(here.running(CTR)) == pods


def shape(document: str) -> list[str]:
    """A document without what differs between runs.

    That is also the names of the Job's pods, how often Volcano restarted its job, and which node holds how many, by
    number and by limit.
    """
    named = _OVERCOMMIT.sub(r"  pods on NODE may use MORE of its \1;", _POD.sub(r"\1-POD", document))
    return record_sessions.shape(_RESTARTS.sub("Running,RESTARTS", _ON_NODE.sub("", named)))


def main() -> int:
    """Record the document."""
    ensure_binaries()
    ensure_volcano()
    with (
        tempfile.TemporaryDirectory(prefix="edl-sessions-") as folder,
        ControlPlane.start(Path(folder), nodes=[FIRST], settings=Settings(node_grace_s=300)) as plane,
        volcano_on(plane) as volcano,
    ):
        DOCUMENT.write_text(record(Scene(plane, volcano)), encoding="utf-8")
    print(f"recorded {DOCUMENT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
