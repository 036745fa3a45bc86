"""The pods of a job as its own pods find them: through the Kubernetes API, else by the names of the headless Service.

Standard library only, because this runs in whatever image trains. The API says more (phases, readiness, who is on the
way out) and needs a ServiceAccount that may list pods; DNS needs nothing and knows just who has an address.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edl.errors import ConfigError, PermanentError
from edl.pod.api import AccessDeniedError, PodApi, PodApiAddress
from edl.pod.dns import addresses_of, services_domain

RUNNING = "Running"
PHASES = ("Pending", RUNNING, "Succeeded", "Failed", "Unknown")
MOUNTED_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_INDEX_LABEL = "paddlepaddle.org/index"
_ROLE_LABELS = {"paddle-job": "trainer", "paddle-job-pserver": "pserver", "paddle-job-master": "master"}
_NAME_RULE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_BLOCK = 32  # indices asked about at a time
_MOST_INDICES = 10_000  # a job has no more trainers

Resolver = Callable[[list[str]], list[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class PeerPod:
    """One pod.

    Attributes:
        ip: empty until it has one.
        phase: one of PHASES.
        index: its number within the role, where its label says so.
        is_terminating: somebody has asked it to go.
        is_ready: all of its containers are.
    """

    name: str
    ip: str
    phase: str
    index: int | None
    is_terminating: bool = False
    is_ready: bool = False

    @property
    def is_running(self) -> bool:
        """It runs, and nobody has asked it to go."""
        return self.phase == RUNNING and not self.is_terminating


class PodSource(Protocol):
    """Where pods are looked up."""

    knows_phases: bool

    def pods(self, selector: str) -> list[PeerPod]:
        """The pods that a label selector names.

        Raises:
            TemporaryError: nobody answers.
            PermanentError: they refuse, or cannot answer for such a selector.
        """


def running_in_order(pods: list[PeerPod]) -> list[PeerPod]:
    """Those that run and have an address: by index where every one has an index, else by address, as numbers."""
    running = [pod for pod in pods if pod.is_running and pod.ip]
    if all(pod.index is not None for pod in running):
        return sorted(running, key=lambda pod: (pod.index or 0, _number(pod.ip)))
    return sorted(running, key=lambda pod: _number(pod.ip))


def find_source(environment: Mapping[str, str]) -> PodSource:
    """The API where a ServiceAccount's token is mounted, else DNS.

    Raises:
        ConfigError: the environment does not say which namespace or job this is.
    """
    account = Path(environment.get("EDL_SERVICE_ACCOUNT_DIR") or MOUNTED_ACCOUNT)
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    namespace = environment.get("NAMESPACE", "")
    named = DnsPods(environment.get("PADDLE_JOB_NAME", ""), namespace, addresses_of, services_domain(namespace))
    if not host or not (account / "token").is_file():
        return named
    namespace = namespace or _read(account / "namespace")
    address = PodApiAddress(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), namespace, account)
    return ApiPods(PodApi(address), named)


class ApiPods:
    """Pods through the Kubernetes API; by DNS where the account may not list pods.

    Args:
        api: lists them.
        otherwise: asked when the API refuses, which it does for an account that was mounted for something else.
    """

    knows_phases = True

    def __init__(self, api: PodApi, otherwise: PodSource) -> None:
        self._api, self._otherwise = api, otherwise

    def pods(self, selector: str) -> list[PeerPod]:
        """See `PodSource`."""
        if self.knows_phases:
            try:
                return [_pod(body) for body in self._api.list_pods(selector)]
            except AccessDeniedError as error:
                sys.stderr.write(f"{error}; looking pods up by DNS names instead\n")
                self.knows_phases = False
        return self._otherwise.pods(selector)


class DnsPods:
    """Pods by the names that the headless Service of their job gives them.

    Whoever has an address counts as running: the Service names pods before they are ready and while they end.

    Args:
        job: the name of the job and of its Service.
        namespace: of the job; empty where the search path of the pod says it.
        resolve: names -> the addresses of each.
        services: the domain of the namespace's Services, ending with a dot; empty where it is not known.
    """

    knows_phases = False

    def __init__(self, job: str, namespace: str, resolve: Resolver, services: str = "") -> None:
        self._job, self._namespace, self._resolve, self._services = job, namespace, resolve, services

    def pods(self, selector: str) -> list[PeerPod]:
        """See `PodSource`; a selector must name a job, and a role by its own label or by `paddlepaddle.org/role`."""
        job, role = _job_and_role(selector)
        domain = self._domain(job)
        missing = self._addresses([domain]) - self._others(job, domain) if role == "trainer" else set()
        found: dict[int, str] = {}
        for low in range(0, _MOST_INDICES, _BLOCK):
            block = range(low, low + _BLOCK)
            policies = self._resolve([f"{job}-{role}-{index}.{domain}" for index in block])
            hits = {index: answer for index, answer in zip(block, policies, strict=True) if answer}
            found |= {index: answer[0] for index, answer in hits.items()}
            missing -= {ip for answer in hits.values() for ip in answer}
            if not hits and not missing:  # indices have gaps, but every address of the Service is somebody's
                break
        return [PeerPod(f"{job}-{role}-{index}", ip, RUNNING, index) for index, ip in sorted(found.items())]

    def _domain(self, job: str) -> str:
        if self._services:
            return f"{job}.{self._services}"
        return job if job == self._job or not self._namespace else f"{job}.{self._namespace}.svc"

    def _others(self, job: str, domain: str) -> set[str]:
        """Addresses that are no trainer's."""
        roles = ("master", "pserver")
        return self._addresses([f"{job}-{role}-{index}.{domain}" for role in roles for index in range(_BLOCK)])

    def _addresses(self, names: list[str]) -> set[str]:
        return {ip for answer in self._resolve(names) for ip in answer}


def _job_and_role(selector: str) -> tuple[str, str]:
    terms = dict(term.split("=", 1) for term in selector.replace("==", "=").split(",") if "=" in term)
    named = [(terms[label], role) for label, role in _ROLE_LABELS.items() if label in terms]
    if "paddlepaddle.org/job" in terms and "paddlepaddle.org/role" in terms:
        named.append((terms["paddlepaddle.org/job"], terms["paddlepaddle.org/role"]))
    if not named or not _NAME_RULE.fullmatch(named[0][0]) or named[0][1] not in _ROLE_LABELS.values():
        raise PermanentError(
            f"selector {selector!r}: by DNS, pods are found by paddle-job=JOB, paddle-job-pserver=JOB or"
            " paddle-job-master=JOB only; for any other selector name a ServiceAccount that may list pods"
            " (kubectl apply -k deploy/pod-reader, serviceAccountName: edl-pod-reader)"
        )
    return named[0]


def _pod(body: Mapping[str, object]) -> PeerPod:
    metadata, status = _mapping(body.get("metadata")), _mapping(body.get("status"))
    label = str(_mapping(metadata.get("labels")).get(_INDEX_LABEL, ""))
    statuses = status.get("containerStatuses")
    containers = statuses if isinstance(statuses, list) else []
    wanted = _mapping(body.get("spec")).get("containers")
    return PeerPod(
        name=str(metadata.get("name", "")),
        ip=str(status.get("podIP") or ""),
        phase=str(status.get("phase") or "Unknown"),
        index=int(label) if label.isdecimal() else None,
        is_terminating=bool(metadata.get("deletionTimestamp")),
        is_ready=len(containers) == len(wanted if isinstance(wanted, list) else [])
        and all(_mapping(container).get("ready") is True for container in containers),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(ip: str) -> tuple[int, int]:
    address = ipaddress.ip_address(ip)
    return address.version, int(address)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"NAMESPACE is empty, and {path} cannot be read: {error}; set NAMESPACE") from error
