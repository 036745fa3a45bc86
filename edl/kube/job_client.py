"""TrainingJobs by hand, for people without kubectl: create, read, watch, change, delete, and the logs of their pods.

Thin on purpose: the API server validates, computes the columns and refuses; here is only what is sent. Nothing is
retried: the user sees the answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from edl.api.v1 import API_VERSION, GROUP, KIND, PLURAL
from edl.errors import ConfigError, PermanentError
from edl.kube.client.api_errors import AlreadyExistsError, GoneError, NotFoundError, RefusedError, error_of
from edl.kube.client.calls import Params
from edl.kube.client.session import ApiSession
from edl.kube.job_table import AS_TABLE
from edl.kube.translate.containers import main_container
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.model.names import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from edl.model.status import JobPhase, Reason

RESOURCE = f"trainingjob.{GROUP}"
"""The name that kubectl prints for the resource in its messages."""

ALL_ROLES = "all"
"""The value of `edl logs --role` for the pods of every role."""

WATCH_S = 300
_READ_S = WATCH_S + 60.0
_BUNCH = 500
_START_POLL_S = 1.0
_NOT_STARTED = re.compile(r"is waiting to start|has no log yet")

Object = dict[str, Any]


def jobs_path(namespace: str = "", name: str = "") -> str:
    """The path of a job, of the jobs of a namespace, or of all jobs."""
    base = f"/apis/{API_VERSION}"
    within = f"{base}/namespaces/{namespace}/{PLURAL}" if namespace else f"{base}/{PLURAL}"
    return f"{within}/{name}" if name else within


class NotStartedError(PermanentError):
    """A container has no log, because it has not started."""


class JobClient:
    """Requests about the TrainingJobs of one namespace, or of all."""

    def __init__(self, session: ApiSession, namespace: str) -> None:
        """Use a session.

        Args:
            session: to send requests with.
            namespace: the namespace of the jobs; empty for all namespaces, where only lists and watches make sense.
        """
        self.session, self.namespace = session, namespace

    async def create(self, body: Object) -> Object:
        """Create a job; unknown fields are an error, as for `kubectl create`."""
        space = (body.get("metadata") or {}).get("namespace") or self.namespace
        path, params = jobs_path(space), {"fieldValidation": "Strict"}
        try:
            return _object(await self.session.request("POST", path, params=params, body=body))
        except AlreadyExistsError as error:
            name = f'{RESOURCE} "{(body.get("metadata") or {}).get("name")}"'
            raise PermanentError(
                f"{name} already exists in {space}; delete it first, or choose another name"
            ) from error
        except RefusedError as error:
            raise PermanentError(f"{_refusal(error)}{_remedy(error, space)}") from error

    async def read(self, name: str) -> Object:
        """Read one job."""
        return _object(await self._ask(self.session.get(jobs_path(self.namespace, name))))

    async def all_jobs(self) -> list[Object]:
        """Read all jobs."""
        return [job async for page in self._pages("") for job in page.get("items") or []]

    async def tables(self, names: Iterable[str]) -> AsyncIterator[Object]:
        """Yield a table for each named job; without names, tables of all jobs, page by page."""
        chosen = tuple(names)
        for name in chosen:
            raw = await self._ask(self.session.get(jobs_path(self.namespace, name), accept=AS_TABLE))
            yield _object(raw)
        if not chosen:
            async for page in self._pages(AS_TABLE):
                yield page

    async def changes(self, since: str, name: str = "", *, as_table: bool = True) -> AsyncIterator[Object]:
        """Yield every change after a resourceVersion, until the API server no longer has so old changes.

        Args:
            since: the resourceVersion of what was read.
            name: the name of a job; empty for all.
            as_table: as a table with one row.

        Raises:
            GoneError: read again.
        """
        params = {"fieldSelector": f"metadata.name={name}"} if name else {}
        while True:
            query = {**params, "resourceVersion": since}
            async with self.session.watch(
                jobs_path(self.namespace),
                params=query,
                timeout_s=WATCH_S,
                read_timeout_s=_READ_S,
                accept=AS_TABLE if as_table else "",
            ) as lines:
                async for line in lines:
                    event = _object(line)
                    changed = event.get("object") or {}
                    if event.get("type") == "ERROR":
                        raise error_of(int(changed.get("code") or 500), json.dumps(changed).encode(), "watch")
                    since = _version(changed) or since
                    if event.get("type") != "BOOKMARK":
                        yield event

    async def trainer_bounds(self, name: str) -> tuple[int, int]:
        """Read `min-instance` and `max-instance` of a job.

        Raises:
            PermanentError: the job has ended, so its number of trainers never changes again.
        """
        trainer = (await self._unended(name))["spec"]["trainer"]
        return int(trainer["min-instance"]), int(trainer["max-instance"])

    async def suspend(self, name: str, *, suspended: bool) -> bool:
        """Suspend or resume a job; returns whether that changed anything.

        Raises:
            PermanentError: the job has ended.
        """
        if bool((await self._unended(name))["spec"].get("suspend")) is suspended:
            return False
        body, path = {"spec": {"suspend": suspended}}, jobs_path(self.namespace, name)
        await self._ask(self.session.request("PATCH", path, body=body, content_type="application/merge-patch+json"))
        return True

    async def _unended(self, name: str) -> Object:
        """Read a job; raise an error if it has ended.

        Raises:
            PermanentError: it has ended, so nothing changes it any more.
        """
        found = await self.read(name)
        status = found.get("status") or {}
        phase = status.get("phase")
        # A job that had no valid spec yet is checked again once its spec changes.
        was_tried = bool(status.get("startTime")) or status.get("reason") != Reason.INVALID_SPEC
        if phase in {JobPhase.SUCCEEDED, JobPhase.FAILED} and was_tried:
            raise PermanentError(
                f"job {self.namespace}/{name} has ended ({phase}); nothing was changed;"
                " to train again, delete it and submit it anew"
            )
        return found

    async def scale(self, name: str, replicas: int) -> None:
        """Set the fixed number of trainers; 0 lets the planner decide again."""
        path = f"{jobs_path(self.namespace, name)}/scale"
        body = {"spec": {"replicas": replicas}}
        await self._ask(self.session.request("PATCH", path, body=body, content_type="application/merge-patch+json"))

    async def delete(self, name: str) -> str:
        """Delete a job and, in the background, its pods; return the uid of what is deleted."""
        uid = str((await self.read(name))["metadata"].get("uid", ""))
        await self._ask(self.session.delete(jobs_path(self.namespace, name), uid=uid, propagation="Background"))
        return uid

    async def gone(self, name: str, uid: str) -> None:
        """Wait until the job with that uid does not exist any more."""
        while True:
            try:
                found = _object(await self.session.get(jobs_path(self.namespace, name)))
            except NotFoundError:
                return
            if found["metadata"].get("uid") != uid:
                return
            try:
                async for event in self.changes(_version(found), name, as_table=False):
                    if event.get("type") == "DELETED":
                        return
            except GoneError:
                continue

    async def pods(self, job: str, role: str, index: int | None) -> list[Object]:
        """The pods of a role of a job, or of `all` roles, sorted by role and number.

        The pods of a former job of that name are no pods of this one, even if their labels are the same.

        Raises:
            PermanentError: there is none, or the job does not exist.
        """
        uid = (await self.read(job))["metadata"].get("uid")
        wanted = {
            LABEL_JOB: job,
            **({LABEL_ROLE: role} if role != ALL_ROLES else {}),
            **({LABEL_INDEX: str(index)} if index is not None else {}),
        }
        selector = ",".join(f"{label}={value}" for label, value in wanted.items())
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        raw = await self._ask(self.session.list(path, params={"labelSelector": selector}, limit=0))
        listed: list[Object] = _object(raw).get("items") or []
        if not listed and index is not None and role != ALL_ROLES:
            listed = await self._named(path, f"{job}-{role}-{index}")
        found = [pod for pod in listed if _is_controlled_by(pod, uid)]
        if not found:
            which = "any role" if role == ALL_ROLES else role
            which = which if index is None else f"{which} {index}"
            raise PermanentError(
                f"job {self.namespace}/{job} has no pod of {which} now; edl get {job} shows its state"
            )
        return sorted(found, key=_role_and_number)

    async def _named(self, path: str, name: str) -> list[Object]:
        """Find the pod with a name, even if somebody has removed its labels; empty if there is no such pod."""
        try:
            return [_object(await self.session.get(f"{path}/{name}"))]
        except NotFoundError:
            return []

    async def log(self, pod: str, params: Params, write: Callable[[str], None]) -> None:
        """Read the log of a pod line by line."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        try:
            async with self.session.lines(path, params=params) as lines:
                async for line in lines:
                    write(line.decode(errors="replace"))
        except RefusedError as error:
            if error.code == 400 and _NOT_STARTED.search(error.answer or ""):
                raise NotStartedError(error.answer) from error
            raise _refusal(error) from error

    async def _pages(self, accept: str) -> AsyncIterator[Object]:
        token = ""
        while True:
            params = {"limit": str(_BUNCH), **({"continue": token} if token else {})}
            page = _object(await self._ask(self.session.get(jobs_path(self.namespace), params=params, accept=accept)))
            yield page
            token = str((page.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    @staticmethod
    async def _ask(request: Any) -> Any:  # noqa: ANN401 - an awaitable of what the caller returns
        try:
            return await request
        except RefusedError as error:
            raise _refusal(error) from error


async def read_log_files(client: JobClient, pods: list[Object], params: Params, write: Callable[[str], None]) -> None:
    """Read the logs of pods, all at once if they are followed, else one after the other.

    With several pods, each line begins with the pod and the container, as `kubectl logs --prefix` prints it, and a
    pod whose log cannot be read does not keep the others from being read. A container that has not started is waited
    for if its log is followed. Without a container in the parameters, the main container of each pod is read.

    Raises:
        PermanentError: the logs of these pods cannot be read; it is raised after the others are read.
    """

    def prefixed(pod: Object) -> Callable[[str], None]:
        if len(pods) == 1:
            return write
        start = f"[pod/{pod['metadata']['name']}/{_container(params, pod)}] "
        return lambda line: write(start + line)

    waiting: list[str] = []

    async def read(pod: Object) -> str:
        name, note = pod["metadata"]["name"], ""
        while True:
            try:
                await client.log(name, {**params, "container": _container(params, pod)}, prefixed(pod))
            except NotStartedError as error:
                if "follow" not in params:
                    waiting.append(name)
                    return f"pod {name}: {error}{_what_comes_first(pod)}"
                if note != str(error):
                    note = str(error)
                    prefixed(pod)(note)
            except PermanentError as error:
                return f"pod {name}: {error}"
            else:
                return ""
            await asyncio.sleep(_START_POLL_S)

    if "follow" in params:
        problems = await asyncio.gather(*(read(pod) for pod in pods))
    else:
        problems = [await read(pod) for pod in pods]
    if any(problems):
        listed = "; ".join(problem for problem in problems if problem)
        raise PermanentError(f"{listed}{_where_to_see_why(pods[0]) if waiting else ''}")


def _container(params: Params, pod: Object) -> str:
    """The container to read: the named one, else that of the role; a webhook may have put another one before it."""
    if named := params.get("container"):
        return str(named)
    role = pod["metadata"]["name"].rpartition("-")[0].rpartition("-")[2]
    return main_container([one["name"] for one in pod["spec"]["containers"]], role)


def _what_comes_first(pod: Object) -> str:
    """The init container whose end the others wait for, and how to read its log; empty if there is none."""
    init = {
        one["name"]: one for one in pod["spec"].get("initContainers") or [] if one.get("restartPolicy") != "Always"
    }
    for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated")
        if status["name"] in init and not (ended and not ended.get("exitCode")):
            code = f" (it exited with code {ended['exitCode']})" if ended else ""
            return f"; init container {status['name']} comes first{code}: read its log with -c {status['name']}"
    return ""


def _is_controlled_by(pod: Object, job_uid: str | None) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == job_uid for owner in owners)


def _where_to_see_why(pod: Object) -> str:
    """The command that shows why the containers of a pod's job have not started."""
    metadata = pod["metadata"]
    job, namespace = (metadata.get("labels") or {}).get(LABEL_JOB), metadata.get("namespace") or DEFAULT_NAMESPACE
    return f"; see `edl explain {job if namespace == DEFAULT_NAMESPACE else f'{namespace}/{job}'}`" if job else ""


def checked_job(place: str, body: Object, namespace: str) -> Object:
    """Check an object of a file, and return it as a job to create.

    Raises:
        ConfigError: it is another kind, or names another namespace than the command.
    """
    kind, version = body.get("kind"), body.get("apiVersion")
    if (kind, version) != (KIND, API_VERSION):
        raise ConfigError(f"{place}: kind {kind} of {version} is no {KIND}; edl submit creates {API_VERSION} {KIND}")
    own = (body.get("metadata") or {}).get("namespace")
    if namespace and own and own != namespace:
        raise ConfigError(f"{place}: the job names namespace {own}, and -n names {namespace}; leave out one of them")
    return body


def _refusal(error: RefusedError) -> PermanentError:
    """The message of the API server, without the request."""
    return PermanentError(error.answer or str(error))


def _remedy(error: RefusedError, namespace: str) -> str:
    """Say what to do about a job that was not created; empty if the answer says it already."""
    match error.reason:
        case "NotFound" if "namespaces" in error.answer:
            return f"; run `kubectl create namespace {namespace}`, or choose another one with -n"
        case "NotFound":
            return "; the cluster does not know TrainingJobs: run `kubectl apply --server-side -f crds/`"
        case "Forbidden":
            return f"; you need the right to create {RESOURCE} in namespace {namespace}"
    return ""


def _object(raw: bytes | Object) -> Object:
    found: Object = raw if isinstance(raw, dict) else json.loads(raw)
    return found


def _version(found: Object) -> str:
    """The resourceVersion of an object, or of a table or of its row."""
    rows = found.get("rows") or [{}]
    inner = ((rows[0].get("object") or {}).get("metadata") or {}).get("resourceVersion")
    return str(inner or (found.get("metadata") or {}).get("resourceVersion") or "")


def _role_and_number(pod: Object) -> tuple[str, int, str]:
    labels = pod["metadata"].get("labels") or {}
    index = str(labels.get(LABEL_INDEX, ""))
    return (str(labels.get(LABEL_ROLE, "")), int(index) if index.isdecimal() else -1, str(pod["metadata"]["name"]))
