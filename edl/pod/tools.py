"""The commands of `k8s_tools`: which pods of a job run, at which addresses, and which of them is this pod.

All commands list pods in the same order, so the place of this pod among the running pods is also its place in the
list of endpoints.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from edl.errors import PermanentError, TemporaryError
from edl.pod.entrypoint import print_line
from edl.pod.pods import RUNNING, PeerPod, PodSource, running_in_order

POLL_S = 5.0
_AGAIN = f"checking again in {POLL_S:g} s"
_T = TypeVar("_T")

Sleep = Callable[[float], None]


class Tools:
    """The commands of `k8s_tools`.

    Args:
        source: finds the pods.
        sleep: waits for a number of seconds.
    """

    def __init__(self, source: PodSource, sleep: Sleep = time.sleep) -> None:
        self._source, self._sleep = source, sleep

    def running(self, selector: str) -> list[PeerPod]:
        """The running pods that are not terminating, in the order of `fetch_id`."""
        return running_in_order(self._source.pods(selector))

    def wait_pods_running(self, selector: str, count: int) -> None:
        """Return once `count` pods run; a terminating pod does not count."""
        if count == 0:
            print_line(f"not waiting: 0 pods are needed (selector {selector})")
            return
        print_line(f"waiting for {count} running {'pod' if count == 1 else 'pods'} (selector {selector})")
        self._wait(
            lambda: len([pod for pod in self._source.pods(selector) if pod.is_running]),
            lambda found: found >= count,
            lambda found: f"{found} of {count} pods are running; {_AGAIN}",
        )

    def wait_containers_ready(self, selector: str) -> None:
        """Return once there is a pod, and all containers of all unfinished pods are ready."""
        print_line(f"waiting until all containers are ready (selector {selector})")
        self._wait(
            lambda: [pod for pod in self._with_phases(selector) if pod.phase not in {"Succeeded", "Failed"}],
            lambda pods: bool(pods) and all(pod.is_ready for pod in pods),
            lambda pods: f"{sum(pod.is_ready for pod in pods)} of {len(pods)} pods are ready; {_AGAIN}",
        )

    def fetch_ips(self, selector: str) -> str:
        """The addresses of the running pods, separated by commas."""
        return ",".join(pod.ip for pod in self.running(selector))

    def fetch_endpoints(self, selector: str, port: int) -> str:
        """List ADDRESS:PORT of the running pods, separated by commas; the port increases by 1 from pod to pod."""
        addresses = [f"[{pod.ip}]" if ":" in pod.ip else pod.ip for pod in self.running(selector)]
        return ",".join(f"{address}:{port + place}" for place, address in enumerate(addresses))

    def fetch_id(self, selector: str, name: str, ip: str) -> int:
        """The place of a pod among the running pods, from 0.

        Args:
            selector: the selector of the pods.
            name: the name of this pod; if empty, its address decides.
            ip: the IP address of this pod.

        Raises:
            PermanentError: this pod is not among them.
        """
        pods = self.running(selector)
        for place, pod in enumerate(pods):
            if pod.name == name or (not name and pod.ip == ip):
                return place
        raise PermanentError(
            f"fetch_id {selector}: this pod ({name or ip or 'neither POD_NAME nor POD_IP is set'}) is not one of the"
            f" running pods ({', '.join(pod.name for pod in pods) or 'none'}); check the selector and its labels"
        )

    def count_pods_by_phase(self, selector: str, phase: str) -> int:
        """How many pods are in a phase; for Running, terminating pods do not count."""
        pods = self._source.pods(selector) if phase == RUNNING else self._with_phases(selector)
        return sum(pod.is_running if phase == RUNNING else pod.phase == phase for pod in pods)

    def too_many_failed(self, selector: str, limit: int) -> bool:
        """True if more than `limit` pods have failed; always False by DNS, which does not know phases."""
        pods = self._source.pods(selector) if self._source.knows_phases else []
        return sum(pod.phase == "Failed" and not pod.is_terminating for pod in pods) > limit

    def wait_until_listed(self, selector: str, name: str, ip: str) -> int:
        """Wait until this pod is listed as running, which is a little after it starts; returns its `fetch_id`."""
        self._wait(
            lambda: self.running(selector),
            lambda pods: any(pod.name == name or (not name and pod.ip == ip) for pod in pods),
            lambda _: f"this pod ({name or ip}) is not listed as running yet; {_AGAIN}",
        )
        return self.fetch_id(selector, name, ip)

    def _with_phases(self, selector: str) -> list[PeerPod]:
        pods = self._source.pods(selector)
        if not self._source.knows_phases:
            raise PermanentError(
                f"selector {selector!r}: without access to the API, pods are found by DNS, which knows neither phases"
                " nor readiness; run kubectl apply -k deploy/pod-reader and set serviceAccountName: edl-pod-reader"
            )
        return pods

    def _wait(self, look: Callable[[], _T], is_enough: Callable[[_T], bool], describe: Callable[[_T], str]) -> None:
        """Ask again until a condition holds; errors of an API server that does not answer are only printed."""
        while True:
            try:
                found = look()
            except TemporaryError as error:
                sys.stderr.write(f"{error}; {_AGAIN}\n")
            else:
                if is_enough(found):
                    return
                print_line(describe(found))
            self._sleep(POLL_S)
