"""What the API server can do: whether running pods can be resized in place, and how old the Kueue of a cluster is."""

from __future__ import annotations

import msgspec

from edl.clock import Clock
from edl.errors import EdlError
from edl.kube.client.session import ApiSession

ASKED_AGAIN_AFTER_S = 600.0
"""An API server is upgraded while the controller runs."""
RETRIED_AFTER_S = 30.0
TIMEOUT_S = 4.5

_OPENAPI = "/openapi/v3/apis/kueue.x-k8s.io/v1beta2"
_POD_SETS = 18
_TOO_OLD = "Kueue is older than 0.19, whose elastic jobs get stuck when their size changes; install 0.19 or newer"


class _Resource(msgspec.Struct):
    name: str = ""
    verbs: list[str] = []


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


class _PodSets(msgspec.Struct, rename="camel"):
    max_items: int = 0


class _SpecProperties(msgspec.Struct, rename="camel"):
    pod_sets: _PodSets = msgspec.field(default_factory=_PodSets)


class _Spec(msgspec.Struct):
    properties: _SpecProperties = msgspec.field(default_factory=_SpecProperties)


class _Properties(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Schema(msgspec.Struct):
    properties: _Properties = msgspec.field(default_factory=_Properties)


class _Schemas(msgspec.Struct):
    schemas: dict[str, msgspec.Raw] = {}


class _Document(msgspec.Struct):
    components: _Schemas = msgspec.field(default_factory=_Schemas)


class KueueVersion:
    """Whether Kueue is too old for sizes that edl changes; asked rarely, by the schema of its Workloads.

    No object names the version. Since 0.19 a Workload has up to 18 sets of pods; it had 10 in 0.18, and 8 before.

    Args:
        session: the API server.
        clock: for the time between two questions.
    """

    def __init__(self, session: ApiSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._problem, self._due_s = "", float("-inf")

    async def problem(self) -> str:
        """Why edl sizes no job of Kueue, and the remedy; empty if it does, and while nobody answers."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            try:
                raw = await self._session.get(_OPENAPI, timeout_s=TIMEOUT_S)
                most = _most_pod_sets(raw)
                self._problem = _TOO_OLD if 0 < most < _POD_SETS else ""
                self._due_s = now_s + ASKED_AGAIN_AFTER_S
            except (EdlError, msgspec.MsgspecError):
                self._due_s = now_s + RETRIED_AFTER_S
        return self._problem


def _most_pod_sets(raw: bytes) -> int:
    """How many sets of pods a Workload may have; 0 if the document does not say it."""
    schemas = msgspec.json.decode(raw, type=_Document).components.schemas
    name = next((name for name in schemas if name.endswith(".Workload")), None)
    if name is None:
        return 0
    return msgspec.json.decode(schemas[name], type=_Schema).properties.spec.properties.pod_sets.max_items


class PodResizing:
    """Whether the API server has the subresource `resize` of pods; asked rarely.

    Args:
        session: the API server.
        clock: for the time between two questions.
    """

    def __init__(self, session: ApiSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._is_there, self._due_s = False, float("-inf")

    async def is_there(self) -> bool:
        """True if pods can be resized; the last answer if the server does not answer now."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            try:
                raw = await self._session.get("/api/v1", timeout_s=TIMEOUT_S)
                found = msgspec.json.decode(raw, type=_ResourceList).resources
                self._is_there = any(one.name == "pods/resize" and "patch" in one.verbs for one in found)
                self._due_s = now_s + ASKED_AGAIN_AFTER_S
            except (EdlError, msgspec.MsgspecError):
                self._due_s = now_s + RETRIED_AFTER_S
        return self._is_there
