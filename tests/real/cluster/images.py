"""Makes container images without a registry: the pause image, a base with Python, and what a Dockerfile says.

Nothing is downloaded while a Dockerfile is built (`--network none`): the base comes from Debian's packages and the
wheels from PyPI before, once, into the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edl import __version__
from tests.e2e.control_plane.processes import locked
from tests.e2e.control_plane.versions import ControlPlaneError, cache_root
from tests.real.cluster.layout import PAUSE_IMAGE

ROOT: Final = Path(__file__).resolve().parents[3]
BASE_IMAGE: Final = "edl.test/base:1"
# As deploy/ and the examples name them; nodes take a name without a registry for one of docker.io.
CONTROLLER_IMAGE: Final = f"docker.io/edl/edl-controller:{__version__}"
TRAINER_IMAGE: Final = f"docker.io/edl/trainer-base:{__version__}"
# Debian's release and the Python that it has; wheels are chosen for that one.
_SUITE = "bookworm"
_PYTHON = "3.11"
_PACKAGES = "python3,python3-venv,libgomp1"  # the last one for Paddle, whose image would install it
_MIRROR = "http://deb.debian.org/debian"
_LEFT_OUT = (
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/cache/debconf/*",
    "./var/log/*",
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./dev/*",
)
_BUILD_S = 1800
_LOCKS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("build", "controller"))


class ImageBuilder:
    """Builds images with buildah in a folder of its own, in which layers are shared from build to build.

    Args:
        folder: holds every layer; remove it with the cluster.
        cgroup: of what runs in a build; with a leading slash.
    """

    def __init__(self, folder: Path, cgroup: str) -> None:
        self._folder = folder
        self._cgroup = cgroup
        self._has_base = False

    def build(
        self,
        tag: str,
        *,
        target: str = "",
        context: Path = ROOT,
        dockerfile: Path | None = None,
        base: str = BASE_IMAGE,
        requirements: Sequence[str] = (),
    ) -> Path:
        """Build a Dockerfile.

        Args:
            tag: the image's name and tag, with its registry if it has one.
            target: the stage; empty for the last one.
            context: the build folder.
            dockerfile: its path, if it is not `Dockerfile` in the context.
            base: what `ARG BASE` is given: `BASE_IMAGE` or the tag of an image that was built here before.
            requirements: what pip may install besides the locked libraries of edl; wheels only.

        Returns:
            A docker-archive.

        Raises:
            ControlPlaneError: the build failed; the message ends with what it said.
        """
        self._ensure_base()
        arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        self._buildah(
            *("bud", "--quiet", "--layers", "--network=none", "--pull-never", "--isolation=oci"),
            *("--runtime=/usr/sbin/runc", f"--cgroup-parent={self._cgroup}/build"),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            f"--volume={wheels(requirements)}:/wheels:ro",
            *((f"--target={target}",) if target else ()),
            *((f"--file={dockerfile}",) if dockerfile else ()),
            *(f"--tag={tag}", str(context)),
        )
        archive = self._folder / f"{hashlib.sha256(tag.encode()).hexdigest()[:12]}.tar"
        archive.unlink(missing_ok=True)
        self._buildah("push", "--quiet", tag, f"docker-archive:{archive}:{tag}")
        return archive

    def _ensure_base(self) -> None:
        if not self._has_base:
            self._buildah("pull", "--quiet", f"docker-archive:{base_archive()}")
            self._has_base = True

    def _buildah(self, *arguments: str) -> None:
        """Run buildah in namespaces of its own, which take its mounts and processes with them if this is killed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        places = (f"--root={self._folder}/storage", f"--runroot={self._folder}/run", "--storage-driver=overlay")
        isolation = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        done = subprocess.run(
            [*isolation, "buildah", *places, *arguments],
            env={**os.environ, "TMPDIR": str(self._folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise ControlPlaneError(f"buildah {' '.join(arguments)}: ended with {done.returncode}:\n{tail}")


def fetch() -> None:
    """Fetch now what the repository's own images need, so that no test waits for a download."""
    base_archive()
    wheels()


def base_archive() -> Path:
    """An image of Debian's smallest system with Python, made once; returns a docker-archive named `BASE_IMAGE`."""
    key = hashlib.sha256(_PACKAGES.encode()).hexdigest()[:8]
    archive = _cache() / f"base-{_SUITE}-{platform.machine()}-{key}.tar"
    with locked(_cache(), "another process makes the base image; waiting for it"):
        if not archive.is_file():
            print(f"making the base image {archive}, once (about a minute)", file=sys.stderr, flush=True)
            _make_base(archive)
    return archive


def _make_base(archive: Path) -> None:
    root, part = archive.with_suffix(".root"), archive.with_suffix(".part")
    layer = archive.with_suffix(".layer")
    skipped = " ".join(f"--exclude='{pattern}'" for pattern in _LEFT_OUT)
    script = f"""set -e
rm -rf {root}
debootstrap --variant=minbase --include={_PACKAGES} {_SUITE} {root} {_MIRROR}
tar -C {root} --numeric-owner -cf {layer} {skipped} .
rm -rf {root}"""
    isolation = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    done = subprocess.run([*isolation, "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise ControlPlaneError(f"debootstrap: ended with {done.returncode}:\n{tail}")
    write_archive(part, layer, BASE_IMAGE, {"Cmd": ["/bin/sh"]}).replace(archive)


def wheels(requirements: Sequence[str] = ()) -> Path:
    """A folder with the wheels of what the repository's Dockerfile installs, by hash, and of further requirements.

    Raises:
        ControlPlaneError: pip found no wheel for one.
    """
    locked_by_hash = [word for lock in _LOCKS for word in ("--requirement", str(lock))]
    content = [lock.read_text() for lock in _LOCKS]
    key = hashlib.sha256("\n".join([_PYTHON, *content, *sorted(requirements)]).encode()).hexdigest()[:12]
    folder = _cache() / f"wheels-{key}"
    with locked(_cache(), "another process downloads wheels; waiting for it"):
        if not (folder / ".complete").is_file():
            _download(folder, "--require-hashes", *locked_by_hash)
            if requirements:
                _download(folder, *requirements)
            (folder / ".complete").touch()
    return folder


def _download(folder: Path, *wanted: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    only = ("--only-binary=:all:", f"--python-version={_PYTHON}", f"--dest={folder}")
    done = subprocess.run([*command, *only, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ControlPlaneError(f"pip download: ended with {done.returncode}:\n{done.stderr[-2000:]}")


def write_pause(archive: Path, program: Path) -> Path:
    """Write the image that holds a pod's namespaces: one program."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(program, "pause", filter=_of_root)
    return write_archive(archive, layer, PAUSE_IMAGE, {"Entrypoint": ["/pause"], "User": "65535:65535"})


def write_archive(archive: Path, layer: Path, name: str, config: dict[str, Any]) -> Path:
    """Write a docker-archive with one layer, which is used up: a tar with the layer and two JSON files."""
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    described: Mapping[str, Any] = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "history": [{"created_by": "tests/real"}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, "layer.tar")
        for file, document in (("config.json", described), ("manifest.json", manifest)):
            text = json.dumps(document).encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    layer.unlink()
    return archive


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.mode = 0o755
    return entry


def _cache() -> Path:
    return cache_root().parent / "images"
