"""The questions of `k8s_tools`: which pods of a job run, where, and which of them this is.

Answers are in one order everywhere, so that the place of this pod among the running ones is its place in the list of
endpoints too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from edl.errors import PermanentError, TemporaryError
from edl.pod.entrypoint import say
from edl.pod.pods import RUNNING, PeerPod, PodSource, running_in_order

POLL_S = 5.0
_T = TypeVar("_T")

Sleep = Callable[[float], None]


class Tools:
    """The questions of `k8s_tools`.

    Args:
        source: where pods are looked up.
        sleep: waits so many seconds.
    """

    def __init__(self, source: PodSource, sleep: Sleep = time.sleep) -> None:
        self._source, self._sleep = source, sleep

    def running(self, selector: str) -> list[PeerPod]:
        """The pods that run and are not on their way out, in the order of `fetch_id`."""
        return running_in_order(self._source.pods(selector))

    def wait_pods_running(self, selector: str, count: int) -> None:
        """Return once so many run; a terminating pod does not."""
        say(f"label selector: {selector}, desired: {count}")
        if count == 0:
            return
        self._wait(
            lambda: len([pod for pod in self._source.pods(selector) if pod.is_running]),
            lambda found: found >= count,
            lambda found: f"current cnt: {found} sleep for 5 seconds...",
        )

    def wait_containers_ready(self, selector: str) -> None:
        """Return once there is a pod, and all containers of all pods that have not finished are ready."""
        say(f"label selector: {selector}, wait for all containers")
        self._wait(
            lambda: [pod for pod in self._with_phases(selector) if pod.phase not in {"Succeeded", "Failed"}],
            lambda pods: bool(pods) and all(pod.is_ready for pod in pods),
            lambda pods: f"ready: {sum(pod.is_ready for pod in pods)} of {len(pods)} sleep for 5 seconds...",
        )

    def fetch_ips(self, selector: str) -> str:
        """Addresses of the running pods, comma separated."""
        return ",".join(pod.ip for pod in self.running(selector))

    def fetch_endpoints(self, selector: str, port: int) -> str:
        """Addresses of the running pods with ports that count up from one to the next."""
        addresses = [f"[{pod.ip}]" if ":" in pod.ip else pod.ip for pod in self.running(selector)]
        return ",".join(f"{address}:{port + place}" for place, address in enumerate(addresses))

    def fetch_id(self, selector: str, name: str, ip: str) -> int:
        """The place of a pod among the running ones, by its name, else by its address.

        Raises:
            PermanentError: it is not among them.
        """
        pods = self.running(selector)
        for place, pod in enumerate(pods):
            if pod.name == name or (not name and pod.ip == ip):
                return place
        raise PermanentError(
            f"fetch_id {selector}: this pod ({name or ip or 'neither POD_NAME nor POD_IP is set'}) is not among the"
            f" running ones ({', '.join(pod.name for pod in pods) or 'none'}); look at the selector and at its labels"
        )

    def count_pods_by_phase(self, selector: str, phase: str) -> int:
        """How many pods are in a phase; of the running ones, those that stay."""
        pods = self._source.pods(selector) if phase == RUNNING else self._with_phases(selector)
        return sum(pod.is_running if phase == RUNNING else pod.phase == phase for pod in pods)

    def too_many_failed(self, selector: str, most: int) -> bool:
        """More than so many pods have failed; never where only DNS can be asked, which does not know."""
        pods = self._source.pods(selector) if self._source.knows_phases else []
        return sum(pod.phase == "Failed" and not pod.is_terminating for pod in pods) > most

    def wait_listed(self, selector: str, name: str, ip: str) -> int:
        """`fetch_id`, as soon as this pod is seen to run: it runs a little before the API says so."""
        self._wait(
            lambda: self.running(selector),
            lambda pods: any(pod.name == name or (not name and pod.ip == ip) for pod in pods),
            lambda _: f"{name or ip} is not seen running yet, sleep for 5 seconds...",
        )
        return self.fetch_id(selector, name, ip)

    def _with_phases(self, selector: str) -> list[PeerPod]:
        pods = self._source.pods(selector)
        if not self._source.knows_phases:
            raise PermanentError(
                "phases and readiness are not to be had by DNS; name a ServiceAccount that may list pods"
                " (kubectl apply -k deploy/pod-reader, serviceAccountName: edl-pod-reader)"
            )
        return pods

    def _wait(self, look: Callable[[], _T], is_enough: Callable[[_T], bool], tell: Callable[[_T], str]) -> None:
        """Look until it is enough; an API that does not answer is waited for too."""
        while True:
            try:
                found = look()
            except TemporaryError as error:
                sys.stderr.write(f"{error}; sleep for 5 seconds...\n")
            else:
                if is_enough(found):
                    return
                say(tell(found))
            self._sleep(POLL_S)
