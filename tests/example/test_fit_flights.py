"""The example that people copy: it learns, even if processes are killed, and a pserver applies each push once."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from edl.api.v1 import parse_job
from example.fit_flights.flights import auc, load
from example.fit_flights.local import LocalJob, Plan, RunResult, free_ports
from example.fit_flights.pserver import Part, Server, call
from tests.worlds.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "example/fit_flights"
NOISE = 0.004  # twice the spread of five seeds, with and without kills: docs/tutorial.md


def train(folder: Path, plan: Plan) -> RunResult:
    with LocalJob(folder, plan) as job:
        return job.run()


def assert_all_done_once(result: RunResult, records: int) -> None:
    (epoch,) = result.audit["epochs"]
    assert result.audit["ok"], result.audit["problems"]
    assert (epoch["total"], epoch["done"], epoch["quarantined"]) == (records, records, [])


def test_the_model_is_as_good_if_trainers_and_a_pserver_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`--campaign full` runs five seeds, with more kills."""
    is_full = request.config.getoption("--campaign") == "full"
    records = len(load().late)
    for seed in range(5 if is_full else 1):
        calm, wild = (tmp_path / f"{name}-{seed}" for name in ("calm", "wild"))
        calm.mkdir()
        wild.mkdir()
        kills = 40 if is_full else 8
        undisturbed = train(calm, Plan(seed))
        disturbed = train(wild, Plan(seed, kills=kills, pserver_kills=2 if is_full else 1))
        for result in (undisturbed, disturbed):
            assert_all_done_once(result, records)
            assert result.auc >= 0.76
        assert abs(disturbed.auc - undisturbed.auc) <= NOISE
        assert disturbed.trainer_kills == kills
        assert disturbed.pserver_kills > 0
        assert disturbed.audit["epochs"][0]["redispatched"] > 0


def test_a_trainer_gives_its_leases_back_on_sigterm(tmp_path: Path) -> None:
    with LocalJob(tmp_path, Plan(trainers=1, pservers=1)) as job:
        job.start()
        wait_until(lambda: job.ask("GET", "/v1/status")["reported"] > 0, "the trainer works")
        trainer = job.trainers["trainer-0"]
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(timeout=90) == 143
        status = job.ask("GET", "/v1/status")  # the trainer has given its leases back: none has expired yet
    assert (status["leased"], status["sessions"]["holding"]) == (0, 0)
    assert status["todo"] > 0


def test_a_pserver_saves_the_model_on_sigterm_and_its_successor_continues_from_it(tmp_path: Path) -> None:
    log = tmp_path / "pserver-1.log"
    with LocalJob(tmp_path, Plan(trainers=1, pservers=2)) as job:
        job.start()
        wait_until(lambda: job.ask("GET", "/v1/status")["reported"] > 0, "the trainer works")
        pserver = job.pservers[1]
        pserver.send_signal(signal.SIGTERM)
        assert pserver.wait(timeout=90) == 0
        saved = job.ask("GET", "/v1/status")["checkpoint"]
        job.ask("POST", "/v1/checkpoint/restore", {"id": "latest"})
        job.pservers[1] = job.start_pserver(1)
        loaded = f"part 1: saved checkpoint {saved['id']}\npart 1: loaded checkpoint {saved['id']}, after "
        wait_until(lambda: loaded in log.read_text(), "the successor loads the checkpoint")
        before = job.ask("GET", "/v1/status")["reported"]
        wait_until(lambda: job.ask("GET", "/v1/status")["reported"] > before, "training continues")
        assert f"part 0: loaded checkpoint {saved['id']}" in (tmp_path / "pserver-0.log").read_text()


def gradient(length: int, value: float) -> bytes:
    return np.full(length, value, np.float32).tobytes()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[list[Part]]:
    """Two served parts, with three and two weights."""
    ports = free_ports(2)
    peers = [f"127.0.0.1:{port}" for port in ports]
    servers: list[Server] = []
    for index, port in enumerate(ports):
        folder = tmp_path / str(index)
        folder.mkdir()
        servers.append(Server(Part(index, 5, folder, peers), port))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    yield [server.part for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


def push(part: Part, by: str, seq: int, value: float = 1.0) -> list[float]:
    body = gradient(len(part.weights), value)
    answer = call(part.peers[part.index], "POST", f"/push?by={by}&seq={seq}", body)
    return [float(weight) for weight in np.frombuffer(answer, np.float32)]


def test_a_repeated_push_moves_the_weights_once(parts: list[Part]) -> None:
    first = push(parts[0], "a", 1)
    assert first == pytest.approx([-0.1] * 3, abs=1e-4)
    assert push(parts[0], "a", 1) == first
    assert push(parts[0], "b", 1) != first  # another trainer's
    assert push(parts[0], "a", 2) != first
    assert parts[0].pushes == 3


def test_a_checkpoint_holds_the_weights_and_the_last_push_of_each_trainer(parts: list[Part]) -> None:
    push(parts[0], "a", 1)
    saved = push(parts[0], "a", 2)
    call(parts[0].peers[0], "POST", "/save?number=7")
    later = push(parts[0], "a", 3)
    call(parts[0].peers[0], "POST", "/save?number=9")  # begun and never committed
    call(parts[0].peers[0], "POST", "/load?number=7")
    assert (parts[0].weights.tolist(), parts[0].pushes) == (saved, 2)
    assert push(parts[0], "a", 2) == saved
    assert push(parts[0], "a", 3) == later
    assert not list(parts[0].folder.glob("*9.npz"))


def test_checkpoint_0_is_the_start(parts: list[Part]) -> None:
    push(parts[1], "a", 1)
    call(parts[1].peers[1], "POST", "/load?number=0")
    assert (parts[1].weights.tolist(), parts[1].pushes) == ([0.0, 0.0], 0)


def test_a_part_that_lost_its_disk_gets_its_checkpoint_from_the_next_one(parts: list[Part], tmp_path: Path) -> None:
    saved = push(parts[0], "a", 1)
    call(parts[0].peers[0], "POST", "/save?number=7")
    empty = tmp_path / "empty"
    empty.mkdir()
    successor = Part(0, 5, empty, parts[0].peers)
    successor.load(7)
    assert (successor.weights.tolist(), successor.last) == (saved, {"a": 1})


def test_a_missing_checkpoint_is_an_error_with_a_remedy(parts: list[Part]) -> None:
    with pytest.raises(FileNotFoundError, match=r"checkpoint 7 of part 0 is lost: .* give the pservers a volume"):
        parts[0].load(7)
    with pytest.raises(OSError, match="status 404"):
        call(parts[0].peers[0], "POST", "/load?number=7")


def test_old_checkpoints_are_deleted(parts: list[Part]) -> None:
    for number in range(1, 11):
        call(parts[0].peers[0], "POST", f"/save?number={number}")
    assert [path.stem for path in sorted(parts[0].folder.iterdir())] == [f"part-0-{n:012d}" for n in (8, 9, 10)]
    assert len(list(parts[1].folder.iterdir())) == 3


@pytest.mark.parametrize("body", [b"", gradient(2, 1.0), gradient(4, 1.0)])
def test_a_gradient_of_another_length_is_refused(parts: list[Part], body: bytes) -> None:
    wire = http.client.HTTPConnection(parts[0].peers[0], timeout=60)
    wire.request("POST", "/push?by=a&seq=1", body)
    assert wire.getresponse().status == 400
    wire.close()
    assert parts[0].weights.tolist() == [0.0] * 3


def test_the_data_set_of_the_job_is_every_training_flight() -> None:
    (job,) = [
        body for body in yaml.safe_load_all((EXAMPLE / "job.yaml").read_text()) if body["kind"] == "TrainingJob"
    ]
    flights = load()
    assert job["spec"]["dataset"]["source"] == f"index:{len(flights.late)}"
    assert parse_job(job).spec.trainer.entrypoint == "python -m fit_flights.fit"
    assert len(flights.late) + len(flights.test_late) == 327346
    assert flights.columns.max() == flights.size - 1
    assert flights.test_columns.max() < flights.size


def test_outside_of_a_job_the_example_names_what_is_missing(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(EXAMPLE.parents[1]), "TRAINING_ROLE": "PSERVER"}
    environment |= {"PADDLE_PSERVERS": "127.0.0.1:1", "PADDLE_PSERVER_ID": "0", "CHECKPOINT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "example.fit_flights.fit"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fit: connect: EDL_MASTER is empty")


def test_auc_is_the_share_of_correctly_ordered_pairs() -> None:
    draw = np.random.default_rng(1)
    late, score = (draw.random(200) < 0.3).astype(np.float32), draw.integers(0, 20, 200)
    ones, zeros = score[late > 0], score[late == 0]
    pairs = [(one > zero) + (one == zero) / 2 for one in ones for zero in zeros]
    assert auc(late, score) == pytest.approx(np.mean(pairs))
