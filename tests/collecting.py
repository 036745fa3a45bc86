"""How a process of pytest collects: it imports a share of the files first, and Python does not search for garbage.

With `pytest -n N` each of the processes imports all files of tests. In a fresh checkout none of them is compiled, and
all processes would go through them in the same order and compile each file N times. So each begins with another share
of them. When it comes to the rest, the other processes have compiled that.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

import pytest


@contextmanager
def no_searches() -> Iterator[None]:
    """Search for garbage once, at the end: what is imported stays, so a search before would find nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def import_share(config: pytest.Config) -> None:
    """Import the files that this process begins with, if it is one of several.

    A file that cannot be imported is left to pytest, which tries again and reports the error.
    """
    process = getattr(config, "workerinput", None)
    if process is None:
        return
    paths = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    files = [file for path in paths for file in _files(path, config)]
    for file in share(files, int(process["workerid"].removeprefix("gw")), process["workercount"]):
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def share(files: Sequence[Path], number: int, count: int) -> list[Path]:
    """The files of process `number` of `count`: neighbours, about as many bytes as those of each other process."""
    ends = list(accumulate(1 + file.stat().st_size for file in files))
    # A file belongs to the process in whose part of all bytes its last byte is.
    return [file for file, end in zip(files, ends, strict=True) if (end - 1) * count // ends[-1] == number]


def _files(path: Path, config: pytest.Config) -> Iterator[Path]:
    if config.hook.pytest_ignore_collect(collection_path=path, config=config):
        return
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            yield from _files(inner, config)
    elif path.match("test_*.py"):
        yield path
