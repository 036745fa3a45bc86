"""The requests of the commands without kubectl, on an API that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from edl.errors import ConfigError, PermanentError
from edl.kube.client.api_errors import NotFoundError, RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.job_client import JobClient, checked_job, jobs_path, read_log_files
from edl.model.names import LABEL_INDEX, LABEL_JOB, LABEL_ROLE


def test_paths_name_the_namespace_and_the_job() -> None:
    assert jobs_path() == "/apis/paddlepaddle.org/v1/trainingjobs"
    assert jobs_path("ads", "ctr") == "/apis/paddlepaddle.org/v1/namespaces/ads/trainingjobs/ctr"


def test_a_job_of_another_namespace_than_the_command_is_refused() -> None:
    body = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": "a", "namespace": "ads"}}
    assert checked_job("f.yaml", body, "") is body
    assert checked_job("f.yaml", body, "ads") is body
    with pytest.raises(ConfigError, match=r"f\.yaml: the job names namespace ads, and -n names web; leave out one"):
        checked_job("f.yaml", body, "web")


class Logs:
    """A session whose logs have two lines each; a followed log goes on once all are open."""

    def __init__(self, pods: int) -> None:
        self.left = pods
        self.all_open = asyncio.Event()

    def lines(self, path: str, *, params: dict[str, str]) -> Any:
        return _Log(self, path.split("/")[-2], follows="follow" in params)


class _Log:
    def __init__(self, logs: Logs, pod: str, *, follows: bool) -> None:
        self.logs, self.pod, self.follows = logs, pod, follows

    async def __aenter__(self) -> Any:
        return self.read()

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> Any:
        yield b"first"
        self.logs.left -= 1
        if not self.logs.left:
            self.logs.all_open.set()
        if self.follows:
            await asyncio.wait_for(self.logs.all_open.wait(), 10)
        yield b"second \xff"


def client_of(session: Any) -> JobClient:
    """A client of a session of which only the logs are used."""
    return JobClient(session, "ads")


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "trainer"}]}}


async def test_lines_of_several_pods_begin_with_pod_and_container() -> None:
    client, written = client_of(Logs(2)), list[str]()
    await read_log_files(client, [pod("a-0"), pod("a-1")], {}, written.append)
    assert written == [
        f"[pod/{name}/trainer] {line}" for name in ("a-0", "a-1") for line in ("first", "second \ufffd")
    ]


async def test_the_lines_of_one_pod_are_printed_as_they_are() -> None:
    client, written = client_of(Logs(1)), list[str]()
    await read_log_files(client, [pod("a-0")], {}, written.append)
    assert written == ["first", "second \ufffd"]


class Named:
    """Pods with several containers; it notes whose logs are read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    @asynccontextmanager
    async def lines(self, path: str, *, params: dict[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        self.read.append((path.split("/")[-2], params["container"]))

        async def nothing() -> AsyncIterator[bytes]:
            for line in list[bytes]():
                yield line

        yield nothing()


@pytest.mark.parametrize(
    ("name", "containers", "read"),
    [
        ("a-trainer-0", ["trainer", "uploader"], "trainer"),
        ("a-trainer-0", ["istio", "trainer"], "trainer"),
        ("a-b-master-0", ["log", "master"], "master"),
        ("a-trainer-0", ["only"], "only"),
    ],
)
async def test_the_log_of_the_main_container_is_read_wherever_it_stands(
    name: str, containers: list[str], read: str
) -> None:
    session = Named()
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": one} for one in containers]}}
    await read_log_files(client_of(session), [body], {}, print)
    await read_log_files(client_of(session), [body], {"container": "other"}, print)
    assert session.read == [(name, read), (name, "other")]


async def test_a_container_that_waits_for_an_init_container_says_which_log_to_read() -> None:
    body = pod("a-trainer-0")
    body["spec"]["initContainers"] = [{"name": "done"}, {"name": "fetch"}]
    body["status"] = {
        "initContainerStatuses": [
            {"name": "done", "state": {"terminated": {"exitCode": 0}}},
            {"name": "fetch", "state": {"terminated": {"exitCode": 3}}},
        ]
    }
    with pytest.raises(
        PermanentError, match=r"fetch comes first \(it exited with code 3\): read its log with -c fetch"
    ):
        await read_log_files(client_of(Starting(**{"a-trainer-0": 1})), [body], {}, print)


async def test_followed_logs_are_read_at_once() -> None:
    client, written = client_of(Logs(3)), list[str]()
    await read_log_files(client, [pod("a-0"), pod("a-1"), pod("a-2")], {"follow": "true"}, written.append)
    assert len(written) == 6


async def test_a_refused_log_is_in_the_words_of_the_server() -> None:
    class Refusing:
        def lines(self, path: str, *, params: dict[str, str]) -> Any:
            answer = 'container "trainer" in pod "a-0" is waiting to start (400 BadRequest)'
            raise RefusedError(f"GET {path} {params}", code=400, reason="BadRequest", answer=answer)

    client = client_of(Refusing())
    with pytest.raises(PermanentError, match=r'^container "trainer" in pod "a-0" is waiting to start'):
        await client.log("a-0", {}, print)


class Starting:
    """Pods whose containers start when their log has been asked for often enough."""

    def __init__(self, **refusals: int) -> None:
        self.left = refusals

    @asynccontextmanager
    async def lines(self, path: str, *, params: dict[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        pod = path.split("/")[-2]
        if self.left.get(pod, 0):
            self.left[pod] -= 1
            answer = f'container "trainer" in pod "{pod}" is waiting to start: ContainerCreating'
            raise RefusedError(f"GET {path} {params}", code=400, reason="BadRequest", answer=answer)
        yield self._trained()

    async def _trained(self) -> AsyncIterator[bytes]:
        yield b"trains"


async def test_a_pod_without_a_log_is_named_and_the_others_are_read() -> None:
    client, written = client_of(Starting(**{"a-0": 9})), list[str]()
    with pytest.raises(PermanentError, match=r'^pod a-0: container "trainer" in pod "a-0" is waiting to start'):
        await read_log_files(client, [pod("a-0"), pod("a-1")], {}, written.append)
    assert written == ["[pod/a-1/trainer] trains"]


@pytest.mark.parametrize(("namespace", "job"), [("default", "a"), ("ads", "ads/a")])
async def test_pods_without_logs_name_the_command_that_says_why_once(namespace: str, job: str) -> None:
    stuck = [pod(name) for name in ("a-0", "a-1")]
    for one in stuck:
        one["metadata"] |= {"namespace": namespace, "labels": {LABEL_JOB: "a"}}
    with pytest.raises(PermanentError) as refused:
        await read_log_files(client_of(Starting(**{"a-0": 9, "a-1": 9})), stuck, {}, print)
    assert str(refused.value).count("is waiting to start") == 2
    assert str(refused.value).count("edl explain") == 1
    assert str(refused.value).endswith(f"ContainerCreating; see `edl explain {job}`")


async def test_a_log_that_is_refused_for_another_reason_says_only_that() -> None:
    class Refusing:
        def lines(self, path: str, *, params: dict[str, str]) -> Any:
            raise RefusedError(f"GET {path} {params}", code=403, reason="Forbidden", answer="pods/log is forbidden")

    one = pod("a-0")
    one["metadata"]["labels"] = {LABEL_JOB: "a"}
    with pytest.raises(PermanentError, match=r"^pod a-0: pods/log is forbidden$"):
        await read_log_files(client_of(Refusing()), [one], {}, print)


async def test_a_followed_log_is_waited_for_until_its_container_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.kube.job_client._START_POLL_S", 0.01)
    client, written = client_of(Starting(**{"a-0": 3})), list[str]()
    await read_log_files(client, [pod("a-0")], {"follow": "true"}, written.append)
    assert written == ['container "trainer" in pod "a-0" is waiting to start: ContainerCreating', "trains"]


class Pods:
    """A session with a job and pods; it notes the selectors."""

    def __init__(self, *names: str) -> None:
        self.selectors: list[str] = []
        self._items = [
            {
                "metadata": {
                    "name": name,
                    "labels": {LABEL_ROLE: name.split("-")[1], LABEL_INDEX: name.split("-")[2]},
                    "ownerReferences": [{"uid": "now", "controller": True}],
                }
            }
            for name in names
        ]
        self.others: list[dict[str, Any]] = []

    async def get(self, path: str, **_: Any) -> dict[str, Any]:
        if "/trainingjobs/" in path:
            return {"metadata": {"name": "ctr", "uid": "now"}}
        found = [pod for pod in self.others if path.endswith(f"/pods/{pod['metadata']['name']}")]
        if not found:
            raise NotFoundError(path, code=404, reason="NotFound")
        return found[0]

    async def list(self, _: str, *, params: dict[str, str], limit: int) -> dict[str, Any]:
        assert limit == 0
        self.selectors.append(params["labelSelector"])
        return {"items": self._items}


def owned(pod: dict[str, Any], *owners: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": list(owners)}}


@pytest.mark.parametrize("owners", [[], [{"uid": "former", "controller": True}], [{"uid": "now"}]])
async def test_the_pods_of_a_former_job_of_that_name_are_not_read(owners: list[dict[str, Any]]) -> None:
    session = Pods("ctr-trainer-0")
    session._items = [owned(session._items[0], *owners)]
    with pytest.raises(PermanentError, match="job default/ctr has no pod of trainer now"):
        await JobClient(cast("ApiSession", session), "default").pods("ctr", "trainer", None)


async def test_a_pod_that_lost_its_labels_is_found_by_its_name() -> None:
    session = Pods()
    session.others = [owned(pod("ctr-trainer-1"), {"uid": "now", "controller": True})]
    client = JobClient(cast("ApiSession", session), "default")
    assert [one["metadata"]["name"] for one in await client.pods("ctr", "trainer", 1)] == ["ctr-trainer-1"]
    with pytest.raises(PermanentError, match="no pod of trainer 2"):
        await client.pods("ctr", "trainer", 2)


async def test_the_pods_of_all_roles_are_sorted_by_role_and_number() -> None:
    session = Pods("ctr-trainer-10", "ctr-trainer-2", "ctr-master-0")
    found = await JobClient(cast("ApiSession", session), "default").pods("ctr", "all", None)
    assert [one["metadata"]["name"] for one in found] == ["ctr-master-0", "ctr-trainer-2", "ctr-trainer-10"]
    await JobClient(cast("ApiSession", session), "default").pods("ctr", "trainer", None)
    assert session.selectors == [f"{LABEL_JOB}=ctr", f"{LABEL_JOB}=ctr,{LABEL_ROLE}=trainer"]
