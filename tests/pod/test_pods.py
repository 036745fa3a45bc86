"""Which pods run, in which order, and which of them this is; by names alone where there is no API."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from edl.errors import PermanentError, TemporaryError
from edl.pod.dns import addresses_of, services_domain
from edl.pod.pods import DnsPods, PeerPod, running_in_order
from edl.pod.tools import Tools


class Names:
    """A name server of one job: pod -> address; the headless Service has them all."""

    def __init__(self, job: str, **pods: str) -> None:
        self.pods = {name.replace("_", "-"): ip for name, ip in pods.items()}
        self.job, self.asked = job, 0

    def __call__(self, names: list[str]) -> list[tuple[str, ...]]:
        self.asked += len(names)
        everybody = tuple(dict.fromkeys(self.pods.values()))
        known = {self.job: everybody} | {f"{pod}.{self.job}": (ip,) for pod, ip in self.pods.items()}
        return [known.get(name, ()) for name in names]


class Listed:
    """An API whose list changes from one look to the next; the last one stays."""

    knows_phases = True

    def __init__(self, *looks: list[PeerPod] | TemporaryError) -> None:
        self._looks = list(looks)

    def pods(self, selector: str) -> list[PeerPod]:  # noqa: ARG002 - the port's
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, TemporaryError):
            raise look
        return look


def pod(name: str, ip: str, index: int | None = None, phase: str = "Running", **more: bool) -> PeerPod:
    return PeerPod(name, ip, phase, index, **more)


def tools(*looks: list[PeerPod] | TemporaryError) -> tuple[Tools, list[float]]:
    """With the pauses that are made."""
    slept: list[float] = []
    return Tools(Listed(*looks), slept.append), slept


def test_pods_are_sorted_by_index_and_not_by_name() -> None:
    twelve = [pod(f"j-trainer-{i}", f"10.0.0.{100 - i}", i) for i in (10, 2, 0, 11, 1)]
    assert [p.index for p in running_in_order(twelve)] == [0, 1, 2, 10, 11]


def test_pods_without_an_index_are_sorted_by_numeric_address() -> None:
    mixed = [pod("a", "10.0.0.10", 0), pod("b", "10.0.0.9"), pod("c", "10.0.0.100", 1), pod("d", "fd00::1", 2)]
    assert [p.name for p in running_in_order(mixed)] == ["b", "a", "c", "d"]


def test_only_running_pods_that_are_not_terminating_are_listed() -> None:
    some = [
        pod("a", "10.0.0.3", 2),
        pod("b", "", 0),
        pod("c", "10.0.0.2", 1, is_terminating=True),
        pod("d", "10.0.0.1", 3, phase="Failed"),
        pod("e", "10.0.0.4", 4, phase="Pending"),
    ]
    ask, _ = tools(some)
    assert ask.fetch_ips("x=y") == "10.0.0.3"
    assert ask.fetch_endpoints("x=y", 30236) == "10.0.0.3:30236"
    assert ask.count_pods_by_phase("x=y", "Running") == 2
    assert ask.count_pods_by_phase("x=y", "Failed") == 1


def test_ports_increase_in_the_order_of_the_ids() -> None:
    ask, _ = tools([pod("j-10", "10.0.0.1", 10), pod("j-2", "10.0.0.2", 2), pod("j-3", "fd00::3", 3)])
    assert ask.fetch_endpoints("x=y", 30236) == "10.0.0.2:30236,[fd00::3]:30237,10.0.0.1:30238"
    assert [ask.fetch_id("x=y", name, "") for name in ("j-2", "j-3", "j-10")] == [0, 1, 2]
    assert ask.fetch_id("x=y", "", "10.0.0.1") == 2


def test_no_running_pod_gives_an_empty_line() -> None:
    ask, _ = tools([])
    assert ask.fetch_ips("x=y") == ""
    assert ask.fetch_endpoints("x=y", 1) == ""


def test_a_pod_that_is_not_running_has_no_id() -> None:
    ask, _ = tools([pod("j-0", "10.0.0.1", 0)])
    with pytest.raises(PermanentError, match=r"fetch_id x=y: this pod \(j-9\) is not among the running ones \(j-0\)"):
        ask.fetch_id("x=y", "j-9", "10.0.0.1")


def test_waiting_prints_how_many_pods_run(capsys: pytest.CaptureFixture[str]) -> None:
    two = [pod("a", "10.0.0.1", 0), pod("b", "10.0.0.2", 1)]
    ending = [two[0], pod("b", "10.0.0.2", 1, is_terminating=True)]
    ask, slept = tools([], ending, TemporaryError("the API: no answer"), [*two, pod("c", "10.0.0.3", 2)])
    ask.wait_pods_running("paddle-job=j", 2)
    seen = capsys.readouterr()
    assert seen.out == (
        "label selector: paddle-job=j, desired: 2\n"
        "current cnt: 0 sleep for 5 seconds...\n"
        "current cnt: 1 sleep for 5 seconds...\n"
    )
    assert seen.err == "the API: no answer; sleep for 5 seconds...\n"
    assert slept == [5.0, 5.0, 5.0]


def test_waiting_for_containers_needs_every_container_of_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    ready, not_ready = pod("a", "10.0.0.1", 0, is_ready=True), pod("b", "10.0.0.2", 1)
    done = pod("c", "10.0.0.3", 2, phase="Succeeded")
    ask, slept = tools([], [done], [ready, not_ready, done], [ready, pod("b", "10.0.0.2", 1, is_ready=True), done])
    ask.wait_containers_ready("paddle-job=j")
    assert len(slept) == 3
    assert "ready: 1 of 2 sleep for 5 seconds...\n" in capsys.readouterr().out


def test_terminating_pods_do_not_count_as_failed() -> None:
    old = [pod(f"o-{i}", "", i, phase="Failed", is_terminating=True) for i in range(5)]
    ask, _ = tools([*old, pod("n", "", 0, phase="Failed")])
    assert [ask.too_many_failed("x=y", most) for most in (0, 1)] == [True, False]


def test_dns_gives_the_same_answers_as_the_api() -> None:
    names = Names("j", j_master_0="10.0.0.1", j_pserver_0="10.0.0.2", j_pserver_1="10.0.0.3", j_trainer_2="10.0.0.9")
    names.pods |= {"j-trainer-10": "10.0.0.8"}
    ask = Tools(DnsPods("j", "default", names), lambda _: None)
    assert ask.fetch_ips("paddle-job=j") == "10.0.0.9,10.0.0.8"
    assert ask.fetch_endpoints("paddle-job-pserver=j", 7164) == "10.0.0.2:7164,10.0.0.3:7165"
    assert ask.fetch_ips("paddle-job-master=j") == "10.0.0.1"
    assert ask.fetch_ips("paddlepaddle.org/job=j,paddlepaddle.org/role=pserver") == "10.0.0.2,10.0.0.3"
    assert ask.fetch_id("paddle-job=j", "j-trainer-10", "") == 1
    assert ask.count_pods_by_phase("paddle-job=j", "Running") == 2


def test_a_trainer_with_a_high_index_is_found_by_its_address() -> None:
    names = Names("j", j_master_0="10.0.0.1", j_trainer_3="10.0.0.2", j_trainer_700="10.0.0.3")
    assert [p.index for p in DnsPods("j", "default", names).pods("paddle-job=j")] == [3, 700]
    assert names.asked < 1000


def test_few_names_are_resolved() -> None:
    names = Names("j", j_trainer_0="10.0.0.1", j_trainer_1="10.0.0.2")
    assert len(DnsPods("j", "default", names).pods("paddle-job=j")) == 2
    assert names.asked < 150


@pytest.mark.parametrize("selector", ["app=web", "paddle-job", "paddle-job=../x", "paddlepaddle.org/job=j"])
def test_a_selector_that_dns_cannot_answer_is_refused(selector: str) -> None:
    with pytest.raises(PermanentError, match="by DNS, pods are found by paddle-job=JOB"):
        DnsPods("j", "default", Names("j")).pods(selector)


def test_phases_are_not_available_by_dns() -> None:
    ask = Tools(DnsPods("j", "default", Names("j")), lambda _: None)
    with pytest.raises(PermanentError, match="name a ServiceAccount"):
        ask.count_pods_by_phase("paddle-job=j", "Failed")
    with pytest.raises(PermanentError, match="name a ServiceAccount"):
        ask.wait_containers_ready("paddle-job=j")
    assert not ask.too_many_failed("paddle-job=j", 0)


@pytest.mark.parametrize(
    ("namespace", "lines", "domain"),
    [
        (
            "ads",
            "search ads.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5",
            "ads.svc.cluster.local.",
        ),
        (
            "",
            "nameserver 10.96.0.10\nsearch ads.svc.k8s.example. svc.k8s.example corp.example",
            "ads.svc.k8s.example.",
        ),
        ("other", "search corp.example ads.svc.cluster.local", "other.svc.cluster.local."),
        ("ads", "search a.svc.old\nsearch ads.svc.cluster.local", "ads.svc.cluster.local."),
        ("ads", "search corp.example svc.cluster.local", ""),
        ("ads", "nameserver 10.0.0.2", ""),
    ],
)
def test_the_domain_of_services_is_in_the_search_list(
    tmp_path: Path, namespace: str, lines: str, domain: str
) -> None:
    (tmp_path / "resolv.conf").write_text(f"# by the kubelet\n{lines}\n")
    assert services_domain(namespace, tmp_path / "resolv.conf") == domain
    assert services_domain(namespace, tmp_path / "none") == ""


def test_missing_pods_are_no_error_in_a_cluster_without_internet() -> None:
    """CoreDNS answers for its own domain only; for any other name it has nobody to ask."""
    names = Names("j", j_master_0="10.0.0.1", j_pserver_1="10.0.0.3")
    own = ".ads.svc.cluster.local."

    def isolated(asked: list[str]) -> list[tuple[str, ...]]:
        if foreign := [name for name in asked if not name.endswith(own)]:
            raise TemporaryError(f"{foreign[0]}: the name server does not answer")
        return names([name.removesuffix(own) for name in asked])

    found = DnsPods("j", "ads", isolated, own[1:]).pods("paddle-job-pserver=j")
    assert [(pod.name, pod.ip) for pod in found] == [("j-pserver-1", "10.0.0.3")]
    assert DnsPods("j", "ads", isolated, own[1:]).pods("paddle-job=j") == []


def test_names_are_resolved_by_the_machine() -> None:
    (found,) = addresses_of(["localhost"])
    assert set(found) <= {"127.0.0.1", "::1"}
    assert found


def test_the_threads_that_resolve_names_block_all_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    heard_not: list[set[int]] = []

    def resolve(*_: object, **__: object) -> list[object]:
        heard_not.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert addresses_of(["a", "b"]) == [(), ()]
    assert all({signal.SIGCHLD, signal.SIGTERM} <= blocked for blocked in heard_not), heard_not
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
