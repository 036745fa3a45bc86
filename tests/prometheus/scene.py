"""A cluster trains, serving takes room from it, trainers are lost; Prometheus sees what every panel and rule shows.

The controller, the master, the API server and Prometheus are real processes. The nodes are hollow, and the test makes
the calls of the trainers. The rules and panels are those of deploy/; Prometheus scrapes every second instead of every
15 s, so a minute holds as many samples as a quarter of an hour. Times of alerts are judged in test_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from edl.install.dashboards import dashboards
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Object
from tests.e2e.sandbox.plane import SandboxPlane
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.real_master import PORT, PretendTrainer, RealMaster
from tests.prometheus.server import Prometheus, prometheus

JOB = {"namespace": "default", "job": "ctr"}
MASTER_IP = "127.77.0.9"
WAIT_S = 120.0
# Nobody takes over from the only controller, so it keeps leading if the machine is too busy to renew a lease.
# Trainers end within seconds, as real ones do; so serving that waits for them is seen by a few scrapes.
SETTINGS = Settings(pod_delete_s=4.0)
# What all jobs are in; it has more than the cluster, so it holds nothing back.
QUEUE: Object = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "Queue",
    "metadata": {"name": "default"},
    "spec": {"nominalQuota": {"cpu": 1000}},
}
FLAGS = ("--interval-s", "1", "--serving-headroom", "1", "--no-leader-election")


class Scene:
    """The cluster, its controller, the master of its job, and the Prometheus that scrapes them."""

    def __init__(self, world: World, server: Prometheus, folder: Path, stack: ExitStack) -> None:
        self.world, self.server, self.folder, self._stack = world, server, folder, stack
        self.kube = world.kube
        self.began_s = server.now_s()

    def saw(self, expression: str) -> None:
        """Wait until Prometheus has a result for the expression."""
        self.kube.wait_until(lambda: self.server.query(expression), WAIT_S, expression, poll_s=0.5)

    def play(self) -> None:
        """Let everything happen that a panel shows, and wait until Prometheus has seen it."""
        self.saw("edl_leader == 1")
        self.kube.create(QUEUE)
        self.world.submit(training_job("ctr", dataset={"source": "index:200", "shardSize": 10}, max_trainers=40))
        self.world.submit(training_job("vast", min_trainers=400, max_trainers=400))
        self.kube.wait_until(lambda: self.world.running("ctr") >= 20, WAIT_S, "trainers run")
        master = self._stack.enter_context(RealMaster(self.kube, "ctr", self.folder / "master", MASTER_IP))
        self.server.set_targets([self.controller, {"targets": [f"{MASTER_IP}:{PORT}"], "labels": JOB}])
        self.saw("edl_master_sessions == 0")
        self.train(master)
        self.share()
        self.serve()
        self.fill()
        self.saw("edl:serving_late:ratio_rate5m >= 0")

    @property
    def controller(self) -> Object:
        return {"targets": [f"127.0.0.1:{self.world.controller.port}"]}

    def train(self, master: RealMaster) -> None:
        """Two trainers work; one is lost with its leases; a record fails three times."""
        one, two, three = (PretendTrainer(master, f"ctr-trainer-{i}") for i in range(3))
        three.sync(1)  # as long as it holds this lease, the epoch stays open
        for _ in range(4):
            two.work()
        one.sync(5)
        self.kube.delete("pods", "ctr-trainer-0", grace_s=0)
        self.saw("edl_master_redispatched_positions > 0")
        spoil(two)
        self.saw('edl_master_positions{place="quarantined"} > 0')
        self.saw("edl_job_epoch_done_ratio > 0")

    def share(self) -> None:
        """Two more jobs arrive, one after the other, and the first one gives trainers for each."""
        for count, name in enumerate(("video", "audio"), start=1):
            self.world.submit(training_job(name, min_trainers=4, max_trainers=8))
            self.saw(f'sum(edl_resizes_total{{job="ctr",direction="down"}}) >= {count}')
        self.limit()

    def limit(self) -> None:
        """The first job may have fewer trainers; the cluster is at rest, so no other resize replaces this one."""
        self.saw('max(changes(edl_job_trainers{state=~"current|target"}[10s])) == 0')
        most = self.world.running("ctr") - 2
        self.kube.patch("trainingjobs", "ctr", {"spec": {"trainer": {"max-instance": most}}})
        self.saw('sum(edl_resize_recovery_seconds_count{direction="down"}) > 0')

    def serve(self) -> None:
        """Serving arrives while training fills the cluster; one pod fits nowhere."""
        self.kube.create(serving(replicas=4))
        self.saw('sum(edl_serving_wait_seconds_count{behind="training"}) > 0')
        self.kube.create(serving("huge", replicas=1, cpu="64"))
        self.saw("edl_serving_short_pods > 0")
        self.saw("edl_serving_unplaceable_pods > 0")
        for name in ("web", "huge"):
            self.kube.delete("deployments", name)
        self.saw("edl_serving_short_pods == 0")

    def fill(self) -> None:
        """A job takes room that serving has left: it waits less than those that waited for trainers to end."""
        started = 'sum(edl_job_wait_seconds_count{reached="minimum"})'
        before = float(self.server.query(started)[0]["value"][1])
        self.world.submit(training_job("late", min_trainers=1, max_trainers=1))
        self.saw(f"{started} > {before:g}")


def spoil(trainer: PretendTrainer) -> None:
    """Do what is left of the epoch, except one record, which fails until the master leaves it out."""
    bad, keys = None, ("epoch", "start", "end", "fence")
    while not trainer.master.ask("GET", "/v1/status")["quarantined"]:
        if not trainer.leases:
            trainer.sync(1, 2.0)
        for lease in trainer.leases:
            item = {key: lease[key] for key in keys}
            bad = lease["start"] if bad is None else bad
            if lease["start"] == bad:
                trainer.sync(failed=[{**item, "error": "a bad record"}])
            else:
                trainer.sync(done=[item])
        trainer.leases = []


@contextmanager
def played(folder: Path) -> Iterator[Scene]:
    """The scene after its last act, while its processes still run."""
    (folder / "prometheus").mkdir()
    with ExitStack() as stack:
        world = World(SandboxPlane.start(folder / "cluster", settings=SETTINGS), *FLAGS)
        stack.callback(world.plane.stop)
        server = stack.enter_context(prometheus(folder / "prometheus"))
        stack.enter_context(world.controller)
        scene = Scene(world, server, folder, stack)
        server.set_targets([scene.controller])
        scene.play()
        yield scene


def panels() -> dict[str, list[str]]:
    """Title -> the queries of the panel, with what a reader would choose in the variables of its dashboard."""
    found: dict[str, list[str]] = {}
    for board in dashboards().values():
        for panel in board["panels"]:
            queries = [chosen(panel["title"], target["expr"]) for target in panel.get("targets", ())]
            if queries:
                found.setdefault(panel["title"], []).extend(queries)
    return found


def chosen(title: str, expression: str) -> str:
    is_list = 'namespace=~"$namespace"' in expression
    text = expression.replace("$namespace", ".*" if is_list else JOB["namespace"]).replace("$job", JOB["job"])
    text = text.replace("$resource", "cpu")
    assert "$" not in text, title
    return text
