"""Sends changed bytes to every parser and every port of edl: `make fuzz`, or `python -m benchmarks.hostile_bytes`.

Each gets an equal part of the time. Prints how many inputs each has had and refused. Ends with the input and with 1
as soon as one does harm: an error that nobody expects, an answer 500, a probe that is not answered, 256 MiB more
memory, or half a minute for one input.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.worlds.hostile.fuzz import FoundError, read_changed
from tests.worlds.hostile.listeners import LISTENERS, answer_changed, serve_changed
from tests.worlds.hostile.readers import READERS


def _until(seconds: float, tried: list[int]) -> Callable[[int], bool]:
    """Whether to go on; notes how many inputs there were."""
    ends_s = time.monotonic() + seconds

    def goes_on(count: int) -> bool:
        tried[0] = count
        return time.monotonic() < ends_s

    return goes_on


def main() -> None:
    """Send changed bytes for some time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of all together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*", help="only those whose name contains one of these")
    chosen = parser.parse_args()
    of_masters = "client of masters"
    names = [*READERS, *LISTENERS, of_masters]
    names = [name for name in names if not chosen.words or any(word in name for word in chosen.words)]
    for name in names:
        tried, random = [0], Random(chosen.seed)  # noqa: S311
        goes_on = _until(chosen.seconds / len(names), tried)
        with tempfile.TemporaryDirectory() as folder:
            try:
                if name in READERS:
                    refused = read_changed(name, random, goes_on)
                elif name in LISTENERS:
                    refused = asyncio.run(serve_changed(name, random, goes_on, Path(folder)))
                else:
                    refused = asyncio.run(answer_changed(random, goes_on, Path(folder)))
            except FoundError as error:
                sys.exit(f"{name}, input {tried[0] + 1}: {error}")
        print(f"{name:34} {tried[0]:7d} inputs, {refused:7d} refused or answered", flush=True)


if __name__ == "__main__":
    main()
