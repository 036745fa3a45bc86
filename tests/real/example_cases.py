"""The examples on PyTorch and Paddle as a user applies them, on real kubelets: `make real-examples`.

Each image is built by the Dockerfile of its example, and each job is the file that the documents name, as it is. The
libraries take up to 6 GB an image, so the runs of all tests leave these out.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl import __version__
from tests.real.cluster.images import ROOT, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import Journal, events, names, pods, status

Object = dict[str, Any]
EXAMPLES = ROOT / "example"
HOST_FOLDERS = Path("/var/lib/edl")
ENDED = {"Succeeded", "Failed"}
SLOWEST_S = 900


@pytest.fixture
def journal(controller: RealCluster, tmp_path: Path) -> Iterator[Journal]:
    """A volume for the journal of the next job, which is deleted afterwards."""
    made = Journal(controller, tmp_path / "journal")
    yield made
    controller.kubectl("delete", "tj", "--all", timeout_s=120)
    made.remove()


@pytest.fixture
def host_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder of this machine that the job's volume names; it must not be there, and goes afterwards."""
    folder = HOST_FOLDERS / str(request.param)
    assert not folder.exists(), f"{folder} is somebody's; move it away"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def build(cluster: RealCluster, name: str, folder: Path, *libraries: str, nodes: tuple[str, ...] = ()) -> None:
    """Build the image of an example and bring it to nodes; by default to all."""
    began_s = time.monotonic()
    tag = f"docker.io/edl/{name}:{__version__}"
    archive = cluster.build_image(tag, context=folder, base=TRAINER_IMAGE, requirements=libraries, nodes=nodes)
    say(f"{tag}: {archive.stat().st_size / 1e9:.2f} GB on its nodes after {time.monotonic() - began_s:.0f} s")
    archive.unlink()


def apply(cluster: RealCluster, file: Path) -> str:
    """Create the job of a file as it is; returns its name."""
    cluster.kubectl("create", "-f", str(file))
    return str(yaml.safe_load(file.read_text())["metadata"]["name"])


def trained(cluster: RealCluster, job: str) -> str:
    """The logs of all trainers, once the job has ended well."""
    began_s = time.monotonic()
    cluster.kube.wait_until(lambda: status(cluster, job).get("phase") in ENDED, SLOWEST_S, f"{job} ends")
    ended = status(cluster, job)
    logs = logs_of(cluster, job)
    say(f"{job}: {ended['phase']} after {time.monotonic() - began_s:.0f} s more; {events(cluster, job)}")
    assert ended["phase"] == "Succeeded", (ended, logs[-3000:])
    return logs


def logs_of(cluster: RealCluster, job: str) -> str:
    """What the trainers have printed that are still there."""
    found = cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={job},paddlepaddle.org/role=trainer")
    return "\n".join(cluster.kubectl("logs", name) for name in names(found))


def await_trainers(cluster: RealCluster, job: str, least: int) -> list[str]:
    """Names of its trainers, once so many run."""
    cluster.kube.wait_until(lambda: len(pods(cluster, job)) >= least, 180, f"{least} trainers of {job} run")
    return names(pods(cluster, job))


def assert_all_done(journal: Journal, epochs: int, records: int) -> None:
    """By the audit each record of each epoch is done once."""
    report = journal.audit()
    assert report["ok"], report["problems"]
    assert [(one["done"], one["total"]) for one in report["epochs"]] == [(records, records)] * epochs


def say(line: str) -> None:
    """Show it at once: a run takes minutes."""
    print(line, file=sys.stderr, flush=True)


def test_the_job_of_the_readme_trains_on_its_image(controller: RealCluster, journal: Journal) -> None:
    build(controller, "train-ft", EXAMPLES, "numpy>=2.0", "paddlepaddle>=3.0", "scikit-learn>=1.5")
    job = apply(controller, EXAMPLES / "examplejob.yaml")
    await_trainers(controller, job, 6)
    controller.kill_container(await_trainers(controller, job, 6)[0])
    logs = trained(controller, job)
    accuracies = [float(found) for found in re.findall(r"Test with Pass \d+, accuracy ([0-9.]+)", logs)]
    say(f"tests: {len(accuracies)}, the best {max(accuracies):.4f}, the last {accuracies[-1]:.4f}")
    assert max(accuracies) > 0.85
    assert status(controller, job)["failures"] == 1
    assert_all_done(journal, epochs=50, records=1500)


@pytest.mark.parametrize("host_folder", ["torch-elastic"], indirect=True)
def test_torch_trains_in_step_while_a_trainer_is_killed(
    controller: RealCluster, journal: Journal, host_folder: Path
) -> None:
    # A hostPath is for trainers of one node, as the job's comment says.
    controller.kubectl("cordon", "node-2")
    try:
        build(
            controller,
            "torch-elastic",
            EXAMPLES / "torch_elastic",
            "torch>=2.2",
            "scikit-learn>=1.5",
            nodes=("node-1",),
        )
        job = apply(controller, EXAMPLES / "torch_elastic" / "job.yaml")
        controller.kill_container(await_trainers(controller, job, 2)[0])
        logs = trained(controller, job)
    finally:
        controller.kubectl("uncordon", "node-2")
    endings = set(re.findall(r"^accuracy ([0-9.]+) on 297 held-out digits, weights ([0-9a-f]+);", logs, re.MULTILINE))
    say(f"endings: {endings}; {sorted(path.name for path in host_folder.iterdir())[-3:]}")
    assert len(endings) == 1, "all trainers have one model, to the last bit"
    assert float(endings.pop()[0]) > 0.93
    assert (host_folder / "model.pt").is_file()
    assert_all_done(journal, epochs=40, records=1500)


@pytest.mark.parametrize("host_folder", ["ctr"], indirect=True)
def test_clicks_train_on_paddles_parameter_servers(
    controller: RealCluster, journal: Journal, host_folder: Path
) -> None:
    libraries = ("paddlepaddle==3.0.0", "protobuf==4.25.8", "setuptools")
    build(controller, "ctr", EXAMPLES / "ctr", *libraries)
    job = apply(controller, EXAMPLES / "ctr" / "job.yaml")
    await_trainers(controller, job, 2)
    logs = trained(controller, job)
    found = [float(auc) for auc in re.findall(r"AUC ([0-9.]+)", logs)]
    say(f"AUC {found}; {sorted(path.name for path in host_folder.iterdir())}")
    assert max(found) > 0.82
    assert any(host_folder.iterdir())
    assert_all_done(journal, epochs=1, records=180_000)
