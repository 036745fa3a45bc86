"""`make planted`: put one bug after the other into edl, and check that the test that is named for it fails.

Words choose bugs by their names and sentences: `python -m tests.planted roster`. First the tests run without any bug.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.planted.bugs import BUGS
from tests.planted.run import Verdict, run_with, run_without

AT_ONCE = 2


def main(words: list[str]) -> int:
    """Plant every bug, or those that name one of the words; return 1 if one is not caught."""
    chosen = [bug for bug in BUGS if not words or any(word in f"{bug.name} {bug.what}" for word in words)]
    if not chosen:
        print(f"no bug names {' or '.join(words)}; tests/planted/bugs.py has them all", file=sys.stderr)
        return 2
    began_s = time.monotonic()
    print(f"{len(chosen)} bugs; their tests run without any bug first", flush=True)
    if printed := run_without(chosen):
        print(f"{printed}\nsome of the tests fail without any bug; fix them first", file=sys.stderr)
        return 1
    caught = 0
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for result in threads.map(run_with, chosen):
            caught += result.verdict is Verdict.CAUGHT
            why = f": {result.why}" if result.why else ""
            print(
                f"{result.verdict}  {result.seconds:4.0f} s  {result.bug.what}  ({result.bug.name}){why}", flush=True
            )
    print(f"{caught} of {len(chosen)} bugs are caught, in {time.monotonic() - began_s:.0f} s")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
