"""Two tenants and a stranger, who do all that they may do to take what is another tenant's.

The tenants create and delete jobs without pause, and get no pods; `hostile_pods` has one with pods. The stranger,
somebody on the network or with a shell on the same machine, opens connections to the controller's port and sends
anything.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Self

from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.worlds.jobs import training_job
from tests.worlds.hostile import drawn
from tests.worlds.hostile.changed_bytes import changed
from tests.worlds.rules.device_scenes import device, device_class, request, slice_of, template, uses

Object = dict[str, Any]
TENANTS = ("mallory", "eve")
PAUSE_S = 0.2  # what the tenants do in a minute is the same on a busy and on a quiet machine
STRANGER_PAUSE_S = 0.01
"""Between two acts: without a pause the client would measure how fast this machine is."""
_KEPT = 12
_HELD = 500
_FROM = "127.0.0.2"  # the controller closes connections of an address that has many, and others are not at this one
"""Connections that the stranger holds."""
_DEVICES = 50
"""Of each node."""
_SLOW = " && ".join(["quantity('1Gi').compareTo(quantity('2Gi')) < 0"] * 40)
_CLAIMS: dict[str, Object] = {
    "many": request(10**12),
    "slow": request(selectors=[{"cel": {"expression": _SLOW}}]),
    "other": request(selectors=[{"cel": {"expression": 'device.driver != "other"'}}]),
}


class HostileTenants:
    """Creates and deletes hostile jobs in a thread while the block runs.

    Attributes:
        acts: how many jobs were created, refused and deleted.
    """

    def __init__(self, kube: Kube, pace: float = 1.0) -> None:
        self.acts: Counter[str] = Counter()
        self._kube, self._pause_s, self._stop = kube, PAUSE_S / pace, threading.Event()
        self._made: deque[tuple[str, str]] = deque()
        self._random = Random(1)  # noqa: S311 - reproducible on purpose
        self._thread = threading.Thread(target=self._run, name="hostile tenants", daemon=True)

    @classmethod
    def settle(cls, kube: Kube) -> None:
        """Create their namespaces, whose quota refuses every pod, and devices that their claims may name."""
        kube.create(device_class())
        for node in kube.list("nodes"):
            kube.create(slice_of(node["metadata"]["name"], *(device(f"gpu-{k}") for k in range(_DEVICES))))
        for name in TENANTS:
            kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            kube.create(_quota(), name)
            for claim, asked in _CLAIMS.items():
                made = template(asked, name=claim)
                kube.create({**made, "metadata": {"name": claim}}, name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        while self._made:
            self._delete_oldest()
        for namespace in TENANTS:
            for job in self._kube.list("trainingjobs", namespace):
                self._kube.patch(
                    "trainingjobs", job["metadata"]["name"], {"metadata": {"finalizers": None}}, namespace
                )

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(self._pause_s):
                return
            self._act(number)
            if len(self._made) > _KEPT:
                self._delete_oldest()

    def _act(self, number: int) -> None:
        namespace = TENANTS[number % 2]
        make = _JOBS[number % len(_JOBS)]
        job = _drawn(number, self._random) if make is None else make(number)
        job["metadata"]["namespace"] = namespace
        try:
            self._kube.create(job, namespace)
        except KubeError:
            self.acts["refused"] += 1
        else:
            self.acts["created"] += 1
            self._made.append((namespace, job["metadata"]["name"]))

    def _delete_oldest(self) -> None:
        namespace, name = self._made.popleft()
        try:
            self._kube.delete("trainingjobs", name, namespace)
            self.acts["deleted"] += 1
        except KubeError:
            self.acts["refused"] += 1


def _quota() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }


def _job(number: int, template: Object | None = None, **spec: Any) -> Object:
    low, high = spec.pop("low", 2), spec.pop("high", 200)
    job = training_job(f"h-{number}", min_trainers=low, max_trainers=high, **spec)
    if template is not None:
        job["spec"]["trainer"]["template"] = {"spec": template}
    return job


def _like_an_honest_one(number: int) -> Object:
    job = _job(number)
    job["metadata"]["name"] = f"honest-{number % 3}-{number}"
    return job


def _with_ports(number: int) -> Object:
    return _job(number, hostNetwork=True, ports_num=120)


def _with_affinity(number: int) -> Object:
    values = [f"n-{i}" for i in range(1500)]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return _job(number, {"affinity": affinity})


def _giant(number: int) -> Object:
    env = [{"name": f"E{i}", "value": "x" * 200} for i in range(400)]
    return _job(number, {"containers": [{"name": "trainer", "env": env}]})


def _oversized(number: int) -> Object:
    """A suspended job with 100,000 empty lists: more of them keep the API server busy for most of the time."""
    return _job(number, {"securityContext": {"x": [[]] * 100_000}}, suspend=True)


def _nested(number: int) -> Object:
    """A job that is nested deeper than edl reads."""
    inner: Any = []
    for _ in range(600):
        inner = [inner]
    return _job(number, {"securityContext": {"x": inner}}, suspend=True)


def _with_finalizer(number: int) -> Object:
    """A job that stays after it was deleted."""
    job = _job(number)
    job["metadata"]["finalizers"] = ["example.org/never"]
    return job


def _with_preferences(number: int) -> Object:
    """A job of 10,000 trainers that prefers 64 nodes by name, each by another weight."""
    terms = [
        {"weight": 1 + i, "preference": {"matchExpressions": [_is_named(f"twenty-{i % 20:02d}", f"gone-{i}")]}}
        for i in range(64)
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return _job(number, {"affinity": affinity}, high=10_000)


def _is_named(*names: str) -> Object:
    return {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}


def _best_effort(number: int) -> Object:
    """A job of 10,000 trainers without requests."""
    job = _job(number, high=10_000)
    del job["spec"]["trainer"]["resources"]
    return job


def _with_pservers(number: int) -> Object:
    """A job of 2,000 pservers that prefer nodes by name."""
    preferring = _with_preferences(number)["spec"]["trainer"]["template"]
    amounts = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    pserver = {"min-instance": 2000, "max-instance": 2000, "resources": amounts, "template": preferring}
    return _job(number, pserver=pserver)


def _with_claims(number: int) -> Object:
    """A job whose trainers claim more devices than there are anywhere, or choose them slowly."""
    return _job(number, uses(tuple(_CLAIMS)[number % len(_CLAIMS)]))


def _with_speeds(number: int) -> Object:
    """A job of 10,000 trainers that declares its speed for 64 counts."""
    points = [{"trainers": 1 + 150 * i, "recordsPerSecond": 100.0 + i} for i in range(64)]
    return _job(number, high=10_000, elasticity={"throughput": points})


def _drawn(number: int, random: Random) -> Object:
    """A job with fields at random from its schema."""
    genes = drawn.drawn(random)
    while genes.kind != "TrainingJob":
        genes = drawn.drawn(random)
    job = drawn.objects_of(replace(genes, running=0), number, 20)[0]
    job["metadata"] = {"name": f"h-{number}"}
    return job


class Stranger:
    """Somebody on the network, in a thread while the block runs.

    Attributes:
        sent: how many connections were opened.
    """

    def __init__(self, port: Callable[[], int], pace: float = 1.0) -> None:
        self.sent = 0
        self._port, self._pause_s = port, STRANGER_PAUSE_S / pace
        self._stop, self._random = threading.Event(), Random(2)  # noqa: S311
        self._thread = threading.Thread(target=self._run, name="stranger", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        held: deque[socket.socket] = deque()
        while not self._stop.wait(self._pause_s):
            with contextlib.suppress(OSError):
                there = ("127.0.0.1", self._port())
                held.append(socket.create_connection(there, timeout=1, source_address=(_FROM, 0)))
                held[-1].setblocking(False)
                held[-1].sendall(changed(_REQUESTS[self.sent % len(_REQUESTS)], self._random)[:20_000])
            if len(held) > _HELD:
                held.popleft().close()
            self.sent += 1
        for one in held:
            one.close()


_REQUESTS = (
    b"GET /metrics HTTP/1.1\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b'POST /page/what-if HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 14\r\n\r\n{"text": "x"}\n',
)

_QUICK: tuple[Callable[[int], Object] | None, ...] = (
    lambda number: _job(number, low=150, priority=1_000_000),
    lambda number: _job(number, queue="of-my-own"),
    _job,
    _like_an_honest_one,
    _with_ports,
    _with_affinity,
    _giant,
    _nested,
    _with_finalizer,
    _with_speeds,
    _with_preferences,
    _best_effort,
    _with_pservers,
    _with_claims,
    None,
)
"""None: one at random."""

_JOBS = (*_QUICK, *_QUICK, _oversized)
