"""The table of images: which program of this machine runs for which image.

A process kubelet pulls nothing. A table maps the names of images to what they would contain: folders of this machine
that stand for folders of the image, variables, and the command that runs if the container sets none. Programs are
found on a PATH that starts with a folder in which `edl`, `paddle_k8s`, `k8s_tools` and `python` are those of the
running edl.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import edl

_DEFAULT_REGISTRIES = ("docker.io/library/", "docker.io/")
_MODULES = {
    "edl": '-c "from edl.cli.main import main; main()"',
    "paddle_k8s": "-m edl.pod paddle_k8s",
    "k8s_tools": "-m edl.pod k8s_tools",
    "python": "",
    "python3": "",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A row of the table of images.

    Attributes:
        pattern: the pattern of the name without tag and digest; `*` stands for any text.
        about: what runs, for people.
        entrypoint: the program; args are its arguments, and a command replaces it.
        command: the arguments of the entrypoint, or the program if there is none; args replace it.
        folders: folder of the image -> folder of this machine.
        env: variables of the image; `{root}` is the folder of the container.
    """

    pattern: str
    about: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def source_folder() -> Path:
    """The folder that contains the package edl: the checkout, if edl runs from one."""
    return Path(edl.__file__).resolve().parents[1]


def default_images() -> tuple[Image, ...]:
    """The images that the sandbox knows."""
    serve = (sys.executable, "-m", "edl.sandbox.kubelet.serve")
    example = source_folder() / "example"
    rows = [
        Image(
            "*edl/edl-controller",
            "the data master of a job: the edl that runs the sandbox",
            ("edl",),
            ("controller",),
        ),
        Image(
            "*edl/trainer-base",
            "the Python that runs the sandbox, with edl",
            (),
            ("python",),
            {"/workspace": "{root}/workspace"},
        ),
    ]
    if example.is_dir():
        rows.append(
            Image(
                "*edl/fit-flights",
                f"this Python with {example}/fit_flights",
                (),
                ("python",),
                {"/workspace": str(example)},
                {"CHECKPOINT_DIR": "{root}/checkpoints"},
            )
        )
        rows += [
            Image(f"*edl/{name}", f"this Python, which needs {package}, with {example}", (), ("python",), places, env)
            for places, env in [({"/workspace": str(example)}, {"CHECKPOINT_DIR": "{root}/checkpoints"})]
            for name, package in (("torch-elastic", "PyTorch"), ("ctr", "Paddle"), ("train-ft", "Paddle"))
        ]
    return (
        *rows,
        Image("*nginx", "a small HTTP server on the ports of the container", serve),
        Image("*edl/serve", "the same", serve),
        Image(
            "*pause", "waits until it is stopped", (sys.executable, "-m", "edl.sandbox.kubelet.serve", "--no-ports")
        ),
        Image("*python", "this Python", (), ("python",)),
        Image("*busybox", "the programs of this machine", (), ("sh",)),
    )


def find_image(images: Iterable[Image], name: str) -> Image | None:
    """Find the row for the image of a container; None if no row matches."""
    plain = name.partition("@")[0]
    for registry in _DEFAULT_REGISTRIES:
        plain = plain.removeprefix(registry)
    head, slash, last = plain.rpartition("/")
    plain = f"{head}{slash}{last.partition(':')[0]}"
    return next((image for image in images if fnmatch.fnmatchcase(plain, image.pattern)), None)


def table(images: Iterable[Image]) -> str:
    """Format the table of images as text, one image a line."""
    rows = [(image.pattern, image.about) for image in images]
    width = max((len(pattern) for pattern, _ in rows), default=0)
    return "\n".join(f"{pattern:<{width}}  {about}" for pattern, about in rows)


def unknown_image(images: Iterable[Image], name: str) -> str:
    """Say why an image is not run, and what to do."""
    known = ", ".join(image.pattern for image in images)
    return (
        f"image {name!r}: the process kubelet pulls no images, and its image table has no row for this one; use an"
        f" image of the table ({known})"
    )


def write_programs(folder: Path) -> None:
    """Write the programs of every image into a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in _MODULES.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)
