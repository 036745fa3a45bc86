"""The commands `edl submit` to `edl delete` for people without kubectl, with kubectl's columns and messages."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import typer

from edl.api.v1 import KIND
from edl.errors import ConfigError, EdlError, PermanentError
from edl.kube.client.api_errors import GoneError
from edl.kube.client.credentials import current_namespace
from edl.kube.client.session import ApiSession
from edl.kube.job_client import RESOURCE, JobClient, Object, checked_job, read_log_files
from edl.kube.job_table import JobTable
from edl.kube.snapshot_files.documents import list_objects, read_documents
from edl.kube.yaml_files import bytes_of, dump_yaml, read_text
from edl.printable import printable
from edl.settings.jobs import (
    DeleteSettings,
    GetSettings,
    JobsOutput,
    LogsSettings,
    NamespaceSettings,
    ScaleSettings,
    SeveralJobsSettings,
    SubmitSettings,
    WatchSettings,
)

COMPLETION_S = 2.0
"""How long a shell waits for the names of jobs."""


def submit(settings: SubmitSettings) -> None:
    """Create the jobs of the files, and print one line each.

    Raises:
        ConfigError: a file cannot be read, or holds something else than TrainingJobs; nothing was created then.
        EdlError: the API server rejects a job; the others are created.
    """
    bodies: list[Object] = []
    for path in settings.file:
        name = "standard input" if path == "-" else path
        text = read_text(name, sys.stdin.buffer.read if path == "-" else bytes_of(path))
        found = list(list_objects(list(read_documents(text, name))))
        if not found:
            raise ConfigError(f"{name} contains no object, so there is nothing to create; write a {KIND} into it")
        bodies += [checked_job(place, body, settings.namespace) for place, body in found]

    async def create(client: JobClient) -> None:
        problems = []
        for body in bodies:
            try:
                made = await client.create(body)
            except EdlError as error:
                problems.append(str(error))
            else:
                typer.echo(f"{RESOURCE}/{made['metadata']['name']} created")
        if problems:
            raise PermanentError("\n".join(problems))

    _run(settings, create)


def get(settings: GetSettings) -> None:
    """Print jobs in one of kubectl's formats.

    Raises:
        EdlError: a job does not exist, or the API server cannot be read.
    """
    _run(settings, lambda client: _print_jobs(client, settings, watches=settings.watch))


def watch(settings: WatchSettings) -> None:
    """Print jobs, and each change until stopped.

    Raises:
        EdlError: a job does not exist, or the API server cannot be read.
    """
    _run(settings, lambda client: _print_jobs(client, settings, watches=True))


def logs(settings: LogsSettings) -> None:
    """Print the logs of a job's pods.

    Raises:
        EdlError: the job has no such pod, or the log cannot be read.
    """
    params = {
        **({"container": settings.container} if settings.container else {}),
        **({"follow": "true"} if settings.follow else {}),
        **({"previous": "true"} if settings.previous else {}),
        **({"tailLines": str(settings.tail)} if settings.tail >= 0 else {}),
    }

    async def read(client: JobClient) -> None:
        index = settings.index if settings.index >= 0 else None
        pods = await client.pods(settings.job, settings.role, index)
        await read_log_files(client, pods, params, typer.echo)

    _run(settings, read)


def scale(settings: ScaleSettings) -> None:
    """Set the fixed number of trainers, as `kubectl scale` does.

    Raises:
        EdlError: the job has ended or does not allow that number, or the API server rejects the request.
    """

    async def change(client: JobClient) -> None:
        least, most = await client.trainer_bounds(settings.job)
        if settings.replicas and not least <= settings.replicas <= most:
            allowed = f"{least} to {most}" if least < most else f"{least}"
            raise PermanentError(f"--replicas {settings.replicas}: the job allows {allowed}, or 0")
        await client.scale(settings.job, settings.replicas)
        typer.echo(f"{RESOURCE}/{settings.job} scaled")

    _run(settings, change)


def suspend(settings: SeveralJobsSettings) -> None:
    """End the pods of jobs until they are resumed.

    Raises:
        EdlError: a job does not exist or has ended, or the API server rejects one; the others are suspended.
    """
    _run(settings, lambda client: _each(client, settings.jobs, suspended=True))


def resume(settings: SeveralJobsSettings) -> None:
    """Let suspended jobs run again.

    Raises:
        EdlError: a job does not exist or has ended, or the API server rejects one; the others are resumed.
    """
    _run(settings, lambda client: _each(client, settings.jobs, suspended=False))


async def _each(client: JobClient, names: tuple[str, ...], *, suspended: bool) -> None:
    problems, done = [], "suspended" if suspended else "resumed"
    for name in names:
        try:
            is_changed = await client.suspend(name, suspended=suspended)
        except EdlError as error:
            problems.append(str(error))
        else:
            typer.echo(f"{RESOURCE}/{name} {done}{'' if is_changed else ' (no change)'}")
    if problems:
        raise PermanentError("\n".join(problems))


def delete(settings: DeleteSettings) -> None:
    """Delete jobs, and wait until they are gone unless `--wait false` is given.

    Raises:
        EdlError: a job does not exist, or the API server rejects the request.
    """

    async def remove(client: JobClient) -> None:
        deleted = []
        for name in settings.jobs:
            deleted.append((name, await client.delete(name)))
            typer.echo(f'{RESOURCE} "{name}" deleted from {client.namespace} namespace')
        for name, uid in deleted if settings.wait == "true" else ():
            await client.gone(name, uid)

    _run(settings, remove)


def job_names(values: Mapping[str, Any], incomplete: str) -> list[str]:
    """The names of jobs that begin with what was typed, for a shell; none if the cluster does not answer soon."""
    kubeconfig = str(values.get("kubeconfig") or "")
    namespace = str(values.get("namespace") or "") or current_namespace(kubeconfig)

    async def names() -> list[str]:
        async with await ApiSession.open(kubeconfig, timeout_s=COMPLETION_S) as session:
            return [str(job["metadata"]["name"]) for job in await JobClient(session, namespace).all_jobs()]

    try:
        return sorted(name for name in asyncio.run(names()) if name.startswith(incomplete))
    except (EdlError, OSError, KeyError):
        return []


def _run(settings: NamespaceSettings, work: Callable[[JobClient], Awaitable[None]]) -> None:
    """Run a function with a client; Ctrl-C ends it without a message."""
    everywhere = isinstance(settings, WatchSettings) and settings.all_namespaces
    namespace = "" if everywhere else settings.namespace or current_namespace(settings.kubeconfig)

    async def run() -> None:
        async with await ApiSession.open(settings.kubeconfig) as session:
            await work(JobClient(session, namespace))

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return


async def _print_jobs(client: JobClient, settings: WatchSettings, *, watches: bool) -> None:
    printer = _Printer(client, settings)
    while True:
        version = await printer.print_list()
        if not watches:
            return
        try:
            name = settings.jobs[0] if len(settings.jobs) == 1 else ""
            async for event in client.changes(version, name, as_table=printer.is_table):
                printer.print_change(event["object"])
        except GoneError:
            continue  # the server has forgotten the version: list again, as kubectl's watch does


class _Printer:
    """Prints jobs in the format of the settings."""

    def __init__(self, client: JobClient, settings: WatchSettings) -> None:
        self._client, self._settings = client, settings
        self.is_table = settings.output in {JobsOutput.TABLE, JobsOutput.WIDE}
        wide = settings.output is JobsOutput.WIDE
        self._table = JobTable(wide=wide, with_namespace=settings.all_namespaces)

    async def print_list(self) -> str:
        """Print the jobs that exist; returns the resourceVersion from which to watch."""
        version, jobs = "", list[Object]()
        if self.is_table:
            empty = True
            async for table in self._client.tables(self._settings.jobs):
                version = version or str((table.get("metadata") or {}).get("resourceVersion") or "")
                for line in self._table.lines(table):
                    typer.echo(line)
                    empty = False
            if empty:
                where = f" in {self._client.namespace} namespace" if self._client.namespace else ""
                typer.echo(f"No resources found{where}.", err=True)
            return version
        names = self._settings.jobs
        jobs = [await self._client.read(name) for name in names] if names else await self._client.all_jobs()
        self._print_objects(jobs, single=len(names) == 1)
        return max((str(job["metadata"].get("resourceVersion", "")) for job in jobs), key=_as_number, default="")

    def print_change(self, changed: Object) -> None:
        """Print an object or a table of a watch, if it is of a job that was asked for."""
        if not self.is_table:
            if not self._settings.jobs or changed["metadata"]["name"] in self._settings.jobs:
                self._print_objects([changed], single=True)
            return
        rows = changed.get("rows") or []
        names = {((row.get("object") or {}).get("metadata") or {}).get("name") for row in rows}
        if not self._settings.jobs or names & set(self._settings.jobs):
            for line in self._table.lines(changed):
                typer.echo(line)

    def _print_objects(self, jobs: list[Object], *, single: bool) -> None:
        if self._settings.output is JobsOutput.NAME:
            for job in jobs:
                typer.echo(f"{RESOURCE}/{job['metadata']['name']}")
            return
        for job in jobs:
            job["metadata"].pop("managedFields", None)
        body = (
            jobs[0]
            if single
            else {"apiVersion": "v1", "items": jobs, "kind": "List", "metadata": {"resourceVersion": ""}}
        )
        if self._settings.output is JobsOutput.JSON:
            typer.echo(printable(json.dumps(body, indent=4, sort_keys=True, ensure_ascii=False)))
        else:
            typer.echo(dump_yaml(body), nl=False)


def _as_number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
