"""Builds what is released into a folder and checks it: `make release`.

The sdist and the wheel come from this checkout; the wheel must be the one that the sdist builds, byte for byte; and
the wheel with its extra `controller`, in an empty virtual environment, must give an `edl` that works. With `--helm
PROGRAM` the chart is packed and checked, with `--docker PROGRAM` the image of the controller is built, run and saved.
Nothing is published.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "chart"
IMAGE = "edl/edl-controller"


class ReleaseError(Exception):
    """What was built is not fit to be released; the message names the file and the rule."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a program and return what it prints.

    Raises:
        ReleaseError: the program failed; the message has its command and its output.
    """
    # With PYTHONPATH, a program of the new environment would import this checkout.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    """The one file of a folder that matches.

    Raises:
        ReleaseError: none matches, or several do.
    """
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ReleaseError(f"{folder}: {len(found)} files match {pattern}, but there must be one")
    return found[0]


def build(source: Path, folder: Path, kind: str) -> Path:
    """Build `sdist` or `wheel` from a source tree into a folder."""
    run(sys.executable, "-m", "build", f"--{kind}", "--outdir", folder, source)
    return only(folder, "*.tar.gz" if kind == "sdist" else "*.whl")


def check_same_wheel(sdist: Path, wheel: Path) -> None:
    """The sdist builds the same wheel.

    Raises:
        ReleaseError: it builds another one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with tarfile.open(sdist) as archive:
            # The argument `filter` of extractall() exists from Python 3.11.4 on, and 3.12 warns of its absence.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder / "source")  # noqa: S202 - the archive was built here
        again = build(only(folder / "source", "*"), folder / "dist", "wheel")
        if again.name != wheel.name or again.read_bytes() != wheel.read_bytes():
            raise ReleaseError(
                f"{sdist.name} builds another wheel than this checkout; add what is missing to the sdist"
            )


def check_works(wheel: Path) -> str:
    """Install the wheel into an empty environment and plan a saved cluster there; returns the version.

    Raises:
        ReleaseError: the installation or a command fails, or `edl` is of another version.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        run(programs / "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[controller]", cwd=folder)
        version = run(programs / "edl", "--version", cwd=folder).split()[-1]
        if f"-{version}-" not in wheel.name:
            raise ReleaseError(f"{wheel.name}: edl prints version {version}")
        saved = ROOT / "docs" / "how-to" / "two-nodes.yaml"
        if "ads/ctr: 4 of 12" not in run(programs / "edl", "plan", "-f", saved, cwd=folder):
            raise ReleaseError(f"{wheel.name}: edl plan -f {saved} does not print the plan of the guide")
        return version


def image(docker: str, folder: Path, version: str) -> Path:
    """Build the controller's image, let it print its version, and save it; returns the archive.

    Raises:
        ReleaseError: it cannot be built, or holds an `edl` of another version.
    """
    name = f"{IMAGE}:{version}"
    run(docker, "build", "--tag", name, ROOT)
    found = run(docker, "run", "--rm", name, "--version").split()[-1]
    if found != version:
        raise ReleaseError(f"{name}: edl prints version {found}")
    archive = folder / f"edl-controller-{version}.image.tar"
    run(docker, "save", "--output", archive, name)
    return archive


def main() -> int:
    """Build and check; print one line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder that is made anew (default: dist)")
    parser.add_argument("--helm", type=Path, help="Helm's program; without it the chart is left out")
    parser.add_argument("--docker", help="Docker's program; without it the image is left out")
    given = parser.parse_args()
    folder = given.into.resolve()
    try:
        shutil.rmtree(folder, ignore_errors=True)
        sdist, wheel = build(ROOT, folder, "sdist"), build(ROOT, folder, "wheel")
        print(f"built {sdist.name} and {wheel.name}")
        check_same_wheel(sdist, wheel)
        print("the sdist builds the same wheel")
        version = check_works(wheel)
        print(f"edl {version} works in an empty environment")
        if given.helm:
            run(given.helm, "lint", "--strict", CHART)
            run(given.helm, "package", CHART, "--destination", folder)
            print(f"packed {only(folder, 'edl-*.tgz').name}")
        else:
            print("the chart is left out: no --helm")
        print(
            f"saved {image(given.docker, folder, version).name}"
            if given.docker
            else "the image is left out: no --docker"
        )
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
