"""The pods of a job as its own pods find them: through the Kubernetes API, or by the DNS names of the job's Service.

Standard library only, because this runs in every trainer's image. The API knows phases, readiness and terminating
pods, but needs a ServiceAccount that may list pods. DNS needs no rights, but only knows which pods have an address.
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
_BLOCK = 32  # indices that are resolved together
_MAX_INDEX = 10_000  # a job has fewer trainers

Resolver = Callable[[list[str]], list[tuple[str, ...]]]
"""Names -> the addresses of each; an empty tuple for a name that does not exist."""


@dataclass(frozen=True, slots=True)
class PeerPod:
    """One pod of the job.

    Attributes:
        name: the name of the pod.
        ip: empty until it has one.
        phase: one of PHASES.
        index: its number within its role, from its label; None without the label.
        is_terminating: the pod is being deleted.
        is_ready: all of its containers are ready.
    """

    name: str
    ip: str
    phase: str
    index: int | None
    is_terminating: bool = False
    is_ready: bool = False

    @property
    def is_running(self) -> bool:
        """True if the pod runs and is not terminating."""
        return self.phase == RUNNING and not self.is_terminating


class PodSource(Protocol):
    """A way to find pods.

    Attributes:
        knows_phases: it knows phases other than Running, readiness and terminating pods.
    """

    knows_phases: bool

    def pods(self, selector: str) -> list[PeerPod]:
        """List the pods that match a label selector.

        Raises:
            TemporaryError: there was no answer.
            PermanentError: the request was refused, or such a selector is not supported.
        """


def running_in_order(pods: list[PeerPod]) -> list[PeerPod]:
    """The running pods that have an address, sorted by index if each has one, else by numeric address."""
    running = [pod for pod in pods if pod.is_running and pod.ip]
    if all(pod.index is not None for pod in running):
        return sorted(running, key=lambda pod: (pod.index or 0, _number(pod.ip)))
    return sorted(running, key=lambda pod: _number(pod.ip))


def find_source(environment: Mapping[str, str]) -> PodSource:
    """The API if a ServiceAccount's token is mounted, else DNS.

    Raises:
        ConfigError: the namespace is unknown.
    """
    account = Path(environment.get("EDL_SERVICE_ACCOUNT_DIR") or MOUNTED_ACCOUNT)
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    namespace = environment.get("NAMESPACE", "")
    by_dns = DnsPods(environment.get("PADDLE_JOB_NAME", ""), namespace, addresses_of, services_domain(namespace))
    if not host or not (account / "token").is_file():
        return by_dns
    namespace = namespace or _read(account / "namespace")
    address = PodApiAddress(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), namespace, account)
    return ApiPods(PodApi(address), by_dns)


class ApiPods:
    """Pods through the Kubernetes API, or by DNS if the account may not list pods.

    Args:
        api: lists the pods.
        fallback: used if the API denies access; an account may be mounted for another purpose.
    """

    knows_phases = True

    def __init__(self, api: PodApi, fallback: PodSource) -> None:
        self._api, self._fallback = api, fallback

    def pods(self, selector: str) -> list[PeerPod]:
        """List the pods that match a label selector, by the API or, without that right, by DNS."""
        if self.knows_phases:
            try:
                return [_pod(body) for body in self._api.list_pods(selector)]
            except AccessDeniedError as error:
                sys.stderr.write(f"{error}; until then pods are found by DNS\n")
                self.knows_phases = False
        return self._fallback.pods(selector)


class DnsPods:
    """Pods by the DNS names that the headless Service of their job gives them.

    Every pod with an address counts as running: the Service also names pods that are not ready or are terminating.

    Args:
        job: the name of the job and of its Service.
        namespace: the namespace of the job; if empty, the search list of this pod decides.
        resolve: looks names up.
        services: the domain of the namespace's Services, with a final dot; empty if unknown.
    """

    knows_phases = False

    def __init__(self, job: str, namespace: str, resolve: Resolver, services: str = "") -> None:
        self._job, self._namespace, self._resolve, self._services = job, namespace, resolve, services

    def pods(self, selector: str) -> list[PeerPod]:
        """List the pods of a job by DNS; the selector must name the job, and may name a role."""
        job, role = _job_and_role(selector)
        domain = self._domain(job)
        # Trainers' indices may have gaps, so their addresses are counted: the Service has all addresses of the job.
        missing = self._addresses([domain]) - self._other_roles(job, domain) if role == "trainer" else set()
        found: dict[int, str] = {}
        for low in range(0, _MAX_INDEX, _BLOCK):
            block = range(low, low + _BLOCK)
            resolved = self._resolve([f"{job}-{role}-{index}.{domain}" for index in block])
            hits = {index: ips for index, ips in zip(block, resolved, strict=True) if ips}
            found |= {index: ips[0] for index, ips in hits.items()}
            missing -= {ip for ips in hits.values() for ip in ips}
            if not hits and not missing:
                break
        return [PeerPod(f"{job}-{role}-{index}", ip, RUNNING, index) for index, ip in sorted(found.items())]

    def _domain(self, job: str) -> str:
        if self._services:
            return f"{job}.{self._services}"
        return job if job == self._job or not self._namespace else f"{job}.{self._namespace}.svc"

    def _other_roles(self, job: str, domain: str) -> set[str]:
        """The addresses of the master and of the pservers."""
        roles = ("master", "pserver")
        return self._addresses([f"{job}-{role}-{index}.{domain}" for role in roles for index in range(_BLOCK)])

    def _addresses(self, names: list[str]) -> set[str]:
        return {ip for ips in self._resolve(names) for ip in ips}


def _job_and_role(selector: str) -> tuple[str, str]:
    terms = dict(term.split("=", 1) for term in selector.replace("==", "=").split(",") if "=" in term)
    pairs = [(terms[label], role) for label, role in _ROLE_LABELS.items() if label in terms]
    if "paddlepaddle.org/job" in terms and "paddlepaddle.org/role" in terms:
        pairs.append((terms["paddlepaddle.org/job"], terms["paddlepaddle.org/role"]))
    if not pairs or not _NAME_RULE.fullmatch(pairs[0][0]) or pairs[0][1] not in _ROLE_LABELS.values():
        raise PermanentError(
            f"selector {selector!r}: without access to the API, pods are found by DNS, which supports only"
            " paddle-job=JOB, paddle-job-pserver=JOB and paddle-job-master=JOB; use one of these, or run"
            " kubectl apply -k deploy/pod-reader and set serviceAccountName: edl-pod-reader"
        )
    return pairs[0]


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
