"""Jobs that cannot train, in real containers: the conditions of each say why and what to do.

All of them run at once. What can be put right while a job runs is put right, and the job then goes on by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.real.cluster.images import BASE_IMAGE, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import NOBODY, Journal, assert_each_once, condition, events, pods, status

Object = dict[str, Any]
SEGFAULT = "python -c 'import os; os.kill(os.getpid(), 11)'"
DIVISION = "python -c 'import os; os.kill(os.getpid(), 8)'"
GREEDY = "python -c 'kept = [bytearray(1 << 20) for _ in range(400)]'"
FORBIDDEN = """python -c 'open("/usr/model", "w")'"""
MANY = "BackoffLimitExceeded"
LIMIT = "the job had 1 pod failure, more than spec.backoffLimit 0: {name}-trainer-0 exited with "

# name -> image, entrypoint, the condition and its reason, pieces of its message.
CASES = {
    "no-image": ("edl.test/none:1", "true", "Degraded", "PodCannotStart", ["cannot be pulled", "imagePullSecrets"]),
    "no-launcher": (BASE_IMAGE, "true", "Failed", MANY, ['exec: "paddle_k8s": executable file not']),
    "no-entrypoint": (TRAINER_IMAGE, "no-such", "Failed", MANY, ["code 127 (", "no-such: not found)"]),
    "no-program": (TRAINER_IMAGE, "/etc/passwd", "Failed", MANY, ["code 126 (", "/etc/passwd: Permission denied)"]),
    "exits-1": (
        TRAINER_IMAGE,
        "exit 1",
        "Failed",
        MANY,
        ["code 1 (General Error; its termination log is empty; see `edl logs"],
    ),
    "exits-136": (TRAINER_IMAGE, DIVISION, "Failed", MANY, ["136 (Error Arithmetic Operation(Floating Point Exc"]),
    "exits-139": (TRAINER_IMAGE, SEGFAULT, "Failed", MANY, ["139 (Segmentation Fault)"]),
    "exits-3": (TRAINER_IMAGE, "exit 3", "Failed", MANY, ["code 3 (its termination log is empty; see `edl logs"]),
    "forbidden": (
        TRAINER_IMAGE,
        FORBIDDEN,
        "Failed",
        MANY,
        ["code 1 (PermissionError: [Errno 13] Permission denied: '/usr/model'); `edl logs"],
    ),
    "greedy": (TRAINER_IMAGE, GREEDY, "Failed", MANY, ["137 (OOMKilled: ", "; raise limits.memory of its role"]),
    "silent": (TRAINER_IMAGE, "true", "Complete", "Finished", ["all trainers exited with code 0"]),
    "in-background": (TRAINER_IMAGE, "sleep 600 &", "Complete", "Finished", ["all trainers exited with code 0"]),
}
# What the log of its trainer ends with: all that a program has said which says nothing is what the launcher says.
LAST_LINES = {
    "exits-3": "\nthe entrypoint exited with code 3\n",
    "forbidden": "PermissionError: [Errno 13] Permission denied: '/usr/model'\n"
    "the entrypoint exited with code 1: General Error\n",
    "silent": "\nthe entrypoint exited with code 0\n",
    "in-background": "let the entrypoint wait for them\nthe entrypoint exited with code 0\n",
}
DEAF, FORKS, GRACE_S = "deaf", "forks", 3
DAEMON = "sleep 98765"
FORKING = f"setsid -f {DAEMON}; until [ -e /tmp/go ]; do sleep 0.1; done; echo trained"

FILES, LINES = 40, 1024
READING = """python -c '
import time
from edl.worker import connect
with connect() as job:
    for line in job.records():
        time.sleep(0.0005)
'"""
COUNTING = READING.replace("0.0005", "0.05")
COUNTING_SLOWLY = READING.replace("0.0005", "0.15")  # so that it still trains when its journal is filled
RECORDS = 300
LINES_IMAGE = "edl.test/lines:1"
WITH_FSSPEC = """ARG BASE
FROM ${BASE}
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
USER root
RUN python -m pip install --no-cache-dir --disable-pip-version-check --quiet fsspec
USER 65532:65532
"""
AWAY, SHORT, LOCKED, FULL = "file-away", "file-short", "journal-locked", "journal-full"
NODE, SMALL, BALLAST = "node-1", "256k", "/var/lib/edl/journal/ballast"


def job(name: str, image: str, entrypoint: str) -> Object:
    """A job of one trainer that may not fail once."""
    amounts = {"cpu": "50m", "memory": "64Mi"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "image": image,
            "backoffLimit": 0,
            "trainer": {
                "entrypoint": entrypoint,
                "min-instance": 1,
                "max-instance": 1,
                "resources": {"requests": amounts, "limits": amounts},
                "template": {"spec": {"terminationGracePeriodSeconds": GRACE_S}},
            },
        },
    }


def with_data(name: str, image: str, entrypoint: str, source: str) -> Object:
    """A job with a master, whose journal is on the volume for the class that has the job's name."""
    body = job(name, image, entrypoint)
    body["spec"] |= {
        "fault_tolerant": True,
        "dataset": {"source": source, "shardSize": 5 if source.startswith("index:") else 500},
        "master": {
            "storage": {"size": "1Gi", "storageClassName": name},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": NODE}}},
        },
    }
    return body


def with_files(name: str, folder: Path, backoff_limit: int) -> Object:
    """A job that reads the lines of the files in a folder of this machine."""
    body = with_data(name, LINES_IMAGE, READING, "lines:/data/*.txt")
    body["spec"]["backoffLimit"] = backoff_limit
    body["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": str(folder)}}]
    body["spec"]["volumeMounts"] = [{"name": "data", "mountPath": "/data", "readOnly": True}]
    return body


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine that pods may look into; one with data for each job that reads files."""
    found = tmp_path_factory.mktemp("bad-input")
    for name in (AWAY, SHORT):
        (found / name).mkdir()
        for number in range(FILES):
            (found / name / f"{number:02}.txt").write_text("".join(f"line {i}\n" for i in range(LINES)))
    return found


@pytest.fixture(scope="module")
def journals(controller: RealCluster, folder: Path) -> Iterator[dict[str, Journal]]:
    """A volume for each master; one is root's, one is small."""
    made = {name: Journal(controller, folder / f"of-{name}", name) for name in (AWAY, SHORT, LOCKED, FULL)}
    made[LOCKED].give_to(0)
    small = f"size={SMALL},uid={NOBODY}"
    controller.on_node(NODE, "mount", "-t", "tmpfs", "-o", small, "small", str(made[FULL].folder))
    yield made
    for journal in made.values():
        journal.remove()


@pytest.fixture(scope="module")
def jobs(controller: RealCluster, folder: Path, journals: dict[str, Journal]) -> Iterator[RealCluster]:
    """All of them at once, beside the controller."""
    (folder / "Dockerfile").write_text(WITH_FSSPEC)
    controller.build_image(LINES_IMAGE, context=folder / AWAY, dockerfile=folder / "Dockerfile", base=TRAINER_IMAGE)
    assert len(journals) == 4
    for name, (image, entrypoint, *_) in CASES.items():
        controller.kube.create(job(name, image, entrypoint))
    for body in (
        with_files(AWAY, folder / AWAY, backoff_limit=100),
        with_files(SHORT, folder / SHORT, backoff_limit=0),
        with_data(LOCKED, TRAINER_IMAGE, COUNTING, f"index:{RECORDS}"),
        with_data(FULL, TRAINER_IMAGE, COUNTING_SLOWLY, f"index:{RECORDS}"),
        job(DEAF, TRAINER_IMAGE, "trap '' TERM; echo deaf; while :; do sleep 1; done"),
        job(FORKS, TRAINER_IMAGE, FORKING),
    ):
        controller.kube.create(body)
    yield controller
    controller.kubectl("delete", "tj", "--all", timeout_s=90)


def await_condition(cluster: RealCluster, name: str, kind: str, reason: str, timeout_s: float = 60) -> str:
    """The message of a condition, once it holds for that reason."""
    found = cluster.kube.wait_until(
        lambda: (held := condition(cluster, name, kind)) and held["reason"] == reason and held,
        timeout_s,
        f"{name} is {kind} for {reason}",
    )
    print(f"{name}: {reason}: {found['message']}")
    return str(found["message"])


@pytest.fixture(scope="module")
def troubles(jobs: RealCluster, folder: Path) -> RealCluster:
    """Three jobs at work: one loses its files, one finds them cut, one has no more room for its journal."""
    await_progress(jobs, AWAY)
    move(folder / AWAY, folder)
    await_progress(jobs, SHORT)
    for file in (folder / SHORT).glob("*.txt"):
        os.truncate(file, 100)
    await_progress(jobs, FULL)
    jobs.exec(f"{FULL}-master-0", "sh", "-c", f"dd if=/dev/zero of={BALLAST} bs=4k || true")
    return jobs


def await_progress(cluster: RealCluster, name: str) -> None:
    """Return once something of its data is consumed."""
    cluster.kube.wait_until(lambda: status(cluster, name).get("dataset", {}).get("done"), 90, f"{name} trains")


def move(source: Path, target: Path) -> None:
    """Move the data, as it is, into another folder."""
    for file in source.glob("*.txt"):
        file.rename(target / file.name)


def test_a_journal_that_the_master_may_not_write_is_reported(
    troubles: RealCluster, journals: dict[str, Journal]
) -> None:
    message = await_condition(troubles, LOCKED, "Degraded", "MasterFailing")
    assert "/var/lib/edl/journal: Permission denied for user 65532; give a folder or a volume that this" in message
    journals[LOCKED].give_to(NOBODY)


def test_a_full_journal_is_reported(troubles: RealCluster) -> None:
    message = await_condition(troubles, FULL, "Degraded", "JournalBlocked")
    assert "No space left on device; free space on its volume" in message
    assert pods(troubles, FULL), "its trainer waits"
    troubles.exec(f"{FULL}-master-0", "rm", BALLAST)


def test_a_data_file_that_vanishes_is_reported(troubles: RealCluster, folder: Path) -> None:
    missing = ".txt is missing; the master and every trainer need it there)"
    troubles.kube.wait_until(lambda: missing in events(troubles, AWAY), 60, "the job tells which file is missing")
    move(folder, folder / AWAY)


def test_a_data_file_that_is_cut_is_reported(troubles: RealCluster) -> None:
    message = await_condition(troubles, SHORT, "Failed", MANY)
    assert LIMIT.format(name=SHORT) in message
    assert "now 100 and" in message
    assert "restore the old file, or create a new job" in message


@pytest.mark.parametrize(("name", "records"), [(AWAY, FILES * LINES), (LOCKED, RECORDS), (FULL, RECORDS)])
def test_what_is_put_right_goes_on_by_itself(
    troubles: RealCluster, journals: dict[str, Journal], folder: Path, name: str, records: int
) -> None:
    await_condition(troubles, name, "Complete", "Finished", 120)
    assert bool(status(troubles, name)["failures"]) == (name == AWAY)
    assert not condition(troubles, name, "Degraded")
    journal = journals[name]
    if name == FULL:  # what is mounted on a node is not seen from here
        troubles.on_node(NODE, "cp", "-r", str(journal.folder), str(folder / "kept"))
        journal.folder = folder / "kept"
    assert_each_once(journal.audit(), records)


@pytest.mark.parametrize("name", CASES)
def test_a_job_that_cannot_train_says_why(jobs: RealCluster, name: str) -> None:
    _, _, kind, reason, pieces = CASES[name]
    message = await_condition(jobs, name, kind, reason)
    for piece in pieces:
        assert piece in message
    if kind == "Failed":
        assert LIMIT.format(name=name) in message
        assert status(jobs, name)["failures"] == 1
    if name in LAST_LINES:
        assert jobs.kubectl("logs", f"{name}-trainer-0").endswith(LAST_LINES[name])


def is_there(words: str) -> bool:
    """Whether a process of that command line runs on this machine, in whatever container."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes().replace(b"\0", b" ").strip() == words.encode():
                return True
    return False


def test_a_daemon_that_the_entrypoint_leaves_behind_ends_with_it(jobs: RealCluster) -> None:
    jobs.kube.wait_until(lambda: is_there(DAEMON), 60, "the daemon runs")
    jobs.exec(f"{FORKS}-trainer-0", "touch", "/tmp/go")
    await_condition(jobs, FORKS, "Complete", "Finished")
    assert not is_there(DAEMON)
    log = jobs.kubectl("logs", f"{FORKS}-trainer-0")
    assert log.endswith(
        "trained\nthe entrypoint left processes running in the background, which end now; to keep them,"
        " let the entrypoint wait for them\nthe entrypoint exited with code 0\n"
    )


def test_a_trainer_that_ignores_sigterm_is_gone_after_its_grace(jobs: RealCluster) -> None:
    jobs.kube.wait_until(lambda: pods(jobs, DEAF), 60, "it runs")
    jobs.kube.wait_until(lambda: "deaf" in jobs.kubectl("logs", f"{DEAF}-trainer-0"), 60, "it ignores SIGTERM now")
    jobs.kube.patch("trainingjobs", DEAF, {"spec": {"suspend": True}})
    gone = f"paddlepaddle.org/job={DEAF}"
    jobs.kube.wait_until(lambda: not jobs.kube.list("pods", "default", labels=gone), GRACE_S + 30, "it is gone")
    jobs.kube.wait_until(lambda: status(jobs, DEAF)["phase"] == "Suspended", 30, "suspended")
    assert not condition(jobs, DEAF, "Failed")
