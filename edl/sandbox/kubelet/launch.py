"""Turns the spec of a container into the process that runs it: program, environment, folders, limits."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import ceil, log
from pathlib import Path
from typing import Any

from edl.model.quantity import parse_quantity
from edl.model.resources import CPU, MEMORY
from edl.sandbox.kubelet import network_hook
from edl.sandbox.kubelet.environment import Find, expand, variables
from edl.sandbox.kubelet.images import Image
from edl.sandbox.kubelet.paths import PathMap
from edl.sandbox.kubelet.runtime import ProcessSpec
from edl.sandbox.kubelet.serve import PORTS
from edl.sandbox.kubelet.temporary import link

Object = dict[str, Any]

TERMINATION_LOG = "/dev/termination-log"
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
MAX_NICE = 19
_KEPT = ("LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class Machine:
    """The environment that every container of a kubelet shares.

    Attributes:
        programs: the folder that comes first on PATH.
        hook: the folder with `sitecustomize.py`.
        source: the folder of the package edl.
        names: the file with the names of Services.
        ports: the folder of mapped ports; None if the system answers on every loopback address.
        api: host and port of the API server, as text.
    """

    programs: Path
    hook: Path
    source: Path
    names: Path
    ports: Path | None
    api: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """The folders and addresses of a container.

    Attributes:
        root: its own folder: working folder, home and temporary files.
        temporary: the short path of its temporary files; a link.
        volumes: volume of the pod -> folder.
        address: the address of the pod.
        node: the Node object.
        find: finds Secrets and ConfigMaps.
    """

    root: Path
    temporary: Path
    volumes: dict[str, Path]
    address: str
    node: Object
    find: Find

    @property
    def termination_log(self) -> Path:
        """The file of the termination message."""
        return self.root / "termination-log"


def process_spec(
    name: str, pod: Object, container: Object, *, image: Image, place: ContainerPlace, machine: Machine
) -> ProcessSpec:
    """Describe the process of a container, and make its folders.

    Args:
        name: the name of the process, unique.
        pod: with its address in the status.
        container: one of its containers.
        image: the row of the image table.
        place: where it runs.
        machine: what every container gets.

    Raises:
        MissingReferenceError: a Secret or a ConfigMap does not exist.
        OSError: a folder cannot be made.
    """
    root = place.root
    link(place.temporary, root / "tmp")
    place.termination_log.write_bytes(b"")
    paths = path_map(container, image, place)
    own = {key: paths.text(value) for key, value in variables(pod, container, place.node, place.find).items()}
    env = {**_base(pod, container, place, machine), **_image_variables(image, root), **own}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(machine.hook), own.get("PYTHONPATH"), str(machine.source))))
    env["PATH"] = os.pathsep.join((str(machine.programs), own.get("PATH") or os.environ.get("PATH", os.defpath)))
    argv = [expand(word, env) for word in _words(container, image)]
    limits = (container.get("resources") or {}).get("limits") or {}
    return ProcessSpec(
        name,
        paths.texts(argv),
        env,
        _working_folder(container, image, paths, root),
        root / "log",
        niceness(container),
        parse_quantity(limits[MEMORY], MEMORY) if MEMORY in limits else 0,
    )


def command_spec(running: ProcessSpec, name: str, command: list[str], log_file: Path, paths: PathMap) -> ProcessSpec:
    """Describe a command in a running container, such as a probe, a hook or an exec."""
    return replace(running, name=name, argv=paths.texts(command), log=log_file, memory=0)


def path_map(container: Object, image: Image, place: ContainerPlace) -> PathMap:
    """The folders of a container on this machine: its mounts, those of its image, and its termination log."""
    folders = {path: here.format(root=place.root) for path, here in image.folders.items()}
    for here in folders.values():
        Path(here).mkdir(parents=True, exist_ok=True)
    folders[container.get("terminationMessagePath") or TERMINATION_LOG] = str(place.termination_log)
    for mount in container.get("volumeMounts") or ():
        if mount["name"] in place.volumes:
            folder = place.volumes[mount["name"]] / (mount.get("subPath") or "")
            folders[mount["mountPath"]] = str(folder)
    return PathMap(folders)


def niceness(container: Object) -> int:
    """The niceness that gives a container its share of the CPU: each step is a factor of 1.25 in the kernel.

    One core is 1, so that the kubelet goes first; a container that requests nothing has the least share.
    Source: sched(7), "The nice value"; kernel/sched/core.c, sched_prio_to_weight.
    """
    requests = (container.get("resources") or {}).get("requests") or {}
    milli = parse_quantity(requests.get(CPU, "0"), CPU)
    return max(1, min(MAX_NICE, 1 + round(log(1000 / milli, 1.25)))) if milli else MAX_NICE


def _base(pod: Object, container: Object, place: ContainerPlace, machine: Machine) -> dict[str, str]:
    host_name = pod["spec"].get("hostname") or pod["metadata"]["name"]
    limits = (container.get("resources") or {}).get("limits") or {}
    threads = max(1, ceil(parse_quantity(limits[CPU], CPU) / 1000)) if CPU in limits else 1
    ports = [str(one["containerPort"]) for one in container.get("ports") or ()]
    env = {key: os.environ[key] for key in _KEPT if key in os.environ}
    env |= {
        "HOME": str(place.root),
        "TMPDIR": str(place.temporary),
        "HOSTNAME": host_name,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        "KUBERNETES_SERVICE_HOST": machine.api[0],
        "KUBERNETES_SERVICE_PORT": machine.api[1],
        "EDL_TERMINATION_LOG": str(place.termination_log),
        network_hook.NAMES_FILE: str(machine.names),
        network_hook.NAMESPACE: pod["metadata"]["namespace"],
        network_hook.HOST_NAME: host_name,
        PORTS: ",".join(ports),
    }
    if not pod["spec"].get("hostNetwork"):
        env[network_hook.ADDRESS] = place.address
    if machine.ports is not None:
        env[network_hook.PORTS_FOLDER] = str(machine.ports)
    for mount in container.get("volumeMounts") or ():
        if mount["mountPath"] == ACCOUNT_FOLDER and mount["name"] in place.volumes:
            env["EDL_SERVICE_ACCOUNT_DIR"] = str(place.volumes[mount["name"]])
    return env


def _image_variables(image: Image, root: Path) -> dict[str, str]:
    found = {key: value.format(root=root) for key, value in image.env.items()}
    for value in found.values():
        if value.startswith(f"{root}/"):
            Path(value).mkdir(parents=True, exist_ok=True)
    return found


def _words(container: Object, image: Image) -> list[str]:
    """Combine command and arguments: the container's own replace the image's.

    Its command drops the image's arguments.
    """
    command, arguments = container.get("command") or [], container.get("args") or []
    if command:
        return [*command, *arguments]
    return [*image.entrypoint, *(arguments or image.command)]


def _working_folder(container: Object, image: Image, paths: PathMap, root: Path) -> Path:
    wanted = container.get("workingDir") or next(iter(image.folders), "")
    folder = Path(paths.text(wanted)) if wanted else root
    if not folder.is_dir():
        folder = root
    return folder
