"""Which pods run, in which order, and which of them is this pod; by DNS if there is no API."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from edl.errors import PermanentError, TemporaryError
from edl.pod.dns import addresses_of, services_domain
from edl.pod.pods import DnsPods, PeerPod, running_in_order
from edl.pod.tools import Tools


class FakeDns:
    """A name server for one job; the headless Service has the addresses of all pods."""

    def __init__(self, job: str, **pods: str) -> None:
        self.pods = {name.replace("_", "-"): ip for name, ip in pods.items()}
        self.job, self.resolved = job, 0

    def __call__(self, names: list[str]) -> list[tuple[str, ...]]:
        self.resolved += len(names)
        all_addresses = tuple(dict.fromkeys(self.pods.values()))
        known = {self.job: all_addresses} | {f"{pod}.{self.job}": (ip,) for pod, ip in self.pods.items()}
        return [known.get(name, ()) for name in names]


class FakeApi:
    """An API that returns the next list at each call; it repeats the last one."""

    knows_phases = True

    def __init__(self, *lists: list[PeerPod] | TemporaryError) -> None:
        self._lists = list(lists)

    def pods(self, selector: str) -> list[PeerPod]:  # noqa: ARG002 - the port's
        listed = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(listed, TemporaryError):
            raise listed
        return listed


def pod(name: str, ip: str, index: int | None = None, phase: str = "Running", **more: bool) -> PeerPod:
    return PeerPod(name, ip, phase, index, **more)


def tools(*lists: list[PeerPod] | TemporaryError) -> tuple[Tools, list[float]]:
    """The tools, and the list to which they add each pause."""
    slept: list[float] = []
    return Tools(FakeApi(*lists), slept.append), slept


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
    tool, _ = tools(some)
    assert tool.fetch_ips("x=y") == "10.0.0.3"
    assert tool.fetch_endpoints("x=y", 30236) == "10.0.0.3:30236"
    assert tool.count_pods_by_phase("x=y", "Running") == 2
    assert tool.count_pods_by_phase("x=y", "Failed") == 1


def test_ports_increase_in_the_order_of_the_ids() -> None:
    tool, _ = tools([pod("j-10", "10.0.0.1", 10), pod("j-2", "10.0.0.2", 2), pod("j-3", "fd00::3", 3)])
    assert tool.fetch_endpoints("x=y", 30236) == "10.0.0.2:30236,[fd00::3]:30237,10.0.0.1:30238"
    assert [tool.fetch_id("x=y", name, "") for name in ("j-2", "j-3", "j-10")] == [0, 1, 2]
    assert tool.fetch_id("x=y", "", "10.0.0.1") == 2


def test_no_running_pod_gives_an_empty_line() -> None:
    tool, _ = tools([])
    assert tool.fetch_ips("x=y") == ""
    assert tool.fetch_endpoints("x=y", 1) == ""


def test_a_pod_that_is_not_running_has_no_id() -> None:
    tool, _ = tools([pod("j-0", "10.0.0.1", 0)])
    with pytest.raises(PermanentError, match=r"x=y: this pod \(j-9\) is not one of the running pods \(j-0\)"):
        tool.fetch_id("x=y", "j-9", "10.0.0.1")


def test_waiting_prints_how_many_pods_run(capsys: pytest.CaptureFixture[str]) -> None:
    two = [pod("a", "10.0.0.1", 0), pod("b", "10.0.0.2", 1)]
    ending = [two[0], pod("b", "10.0.0.2", 1, is_terminating=True)]
    tool, slept = tools([], ending, TemporaryError("the API: no answer"), [*two, pod("c", "10.0.0.3", 2)])
    tool.wait_pods_running("paddle-job=j", 2)
    seen = capsys.readouterr()
    assert seen.out == (
        "waiting for 2 running pods (selector paddle-job=j)\n"
        "0 of 2 pods are running; checking again in 5 s\n"
        "1 of 2 pods are running; checking again in 5 s\n"
    )
    assert seen.err == "the API: no answer; checking again in 5 s\n"
    assert slept == [5.0, 5.0, 5.0]


def test_waiting_for_containers_needs_every_container_of_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    ready, not_ready = pod("a", "10.0.0.1", 0, is_ready=True), pod("b", "10.0.0.2", 1)
    done = pod("c", "10.0.0.3", 2, phase="Succeeded")
    tool, slept = tools([], [done], [ready, not_ready, done], [ready, pod("b", "10.0.0.2", 1, is_ready=True), done])
    tool.wait_containers_ready("paddle-job=j")
    assert len(slept) == 3
    assert "1 of 2 pods are ready; checking again in 5 s\n" in capsys.readouterr().out


def test_terminating_pods_do_not_count_as_failed() -> None:
    old = [pod(f"o-{i}", "", i, phase="Failed", is_terminating=True) for i in range(5)]
    tool, _ = tools([*old, pod("n", "", 0, phase="Failed")])
    assert [tool.too_many_failed("x=y", limit) for limit in (0, 1)] == [True, False]


def test_dns_gives_the_same_answers_as_the_api() -> None:
    names = FakeDns(
        "j", j_master_0="10.0.0.1", j_pserver_0="10.0.0.2", j_pserver_1="10.0.0.3", j_trainer_2="10.0.0.9"
    )
    names.pods |= {"j-trainer-10": "10.0.0.8"}
    tool = Tools(DnsPods("j", "default", names), lambda _: None)
    assert tool.fetch_ips("paddle-job=j") == "10.0.0.9,10.0.0.8"
    assert tool.fetch_endpoints("paddle-job-pserver=j", 7164) == "10.0.0.2:7164,10.0.0.3:7165"
    assert tool.fetch_ips("paddle-job-master=j") == "10.0.0.1"
    assert tool.fetch_ips("paddlepaddle.org/job=j,paddlepaddle.org/role=pserver") == "10.0.0.2,10.0.0.3"
    assert tool.fetch_id("paddle-job=j", "j-trainer-10", "") == 1
    assert tool.count_pods_by_phase("paddle-job=j", "Running") == 2


def test_a_trainer_with_a_high_index_is_found_by_its_address() -> None:
    names = FakeDns("j", j_master_0="10.0.0.1", j_trainer_3="10.0.0.2", j_trainer_700="10.0.0.3")
    assert [p.index for p in DnsPods("j", "default", names).pods("paddle-job=j")] == [3, 700]
    assert names.resolved < 1000


def test_few_names_are_resolved() -> None:
    names = FakeDns("j", j_trainer_0="10.0.0.1", j_trainer_1="10.0.0.2")
    assert len(DnsPods("j", "default", names).pods("paddle-job=j")) == 2
    assert names.resolved < 150


@pytest.mark.parametrize("selector", ["app=web", "paddle-job", "paddle-job=../x", "paddlepaddle.org/job=j"])
def test_a_selector_that_dns_cannot_answer_is_refused(selector: str) -> None:
    with pytest.raises(PermanentError, match="by DNS, which supports only paddle-job=JOB"):
        DnsPods("j", "default", FakeDns("j")).pods(selector)


def test_phases_are_not_available_by_dns() -> None:
    tool = Tools(DnsPods("j", "default", FakeDns("j")), lambda _: None)
    with pytest.raises(PermanentError, match="which knows neither phases nor readiness"):
        tool.count_pods_by_phase("paddle-job=j", "Failed")
    with pytest.raises(PermanentError, match="which knows neither phases nor readiness"):
        tool.wait_containers_ready("paddle-job=j")
    assert not tool.too_many_failed("paddle-job=j", 0)


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
    """CoreDNS answers for its own domain only; without internet any other name is an error."""
    names = FakeDns("j", j_master_0="10.0.0.1", j_pserver_1="10.0.0.3")
    own = ".ads.svc.cluster.local."

    def isolated(wanted: list[str]) -> list[tuple[str, ...]]:
        if foreign := [name for name in wanted if not name.endswith(own)]:
            raise TemporaryError(f"{foreign[0]}: the name server does not answer")
        return names([name.removesuffix(own) for name in wanted])

    found = DnsPods("j", "ads", isolated, own[1:]).pods("paddle-job-pserver=j")
    assert [(pod.name, pod.ip) for pod in found] == [("j-pserver-1", "10.0.0.3")]
    assert DnsPods("j", "ads", isolated, own[1:]).pods("paddle-job=j") == []


def test_names_are_resolved_by_the_machine() -> None:
    (found,) = addresses_of(["localhost"])
    assert set(found) <= {"127.0.0.1", "::1"}
    assert found


def test_the_threads_that_resolve_names_block_all_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked_signals: list[set[int]] = []

    def resolve(*_: object, **__: object) -> list[object]:
        blocked_signals.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert addresses_of(["a", "b"]) == [(), ()]
    assert all({signal.SIGCHLD, signal.SIGTERM} <= blocked for blocked in blocked_signals), blocked_signals
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
