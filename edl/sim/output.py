"""Keeps standard output for the report, and says what is wrong if it cannot be written."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from edl.errors import EdlError


@contextmanager
def stdout_for_the_report() -> Iterator[None]:
    """What libraries and other processes write to file descriptor 1 goes to stderr meanwhile.

    HiGHS, for one, prints there from C, whatever `sys.stdout` is.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # what C has buffered
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def written_to_stdout() -> Iterator[None]:
    """Write out what is printed meanwhile.

    Raises:
        EdlError: it cannot be written; a closed pipe is no error of ours and stays a BrokenPipeError.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # what is left would fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise EdlError(
            f"stdout: the report cannot be written: {error.strerror or error}; free space there, or write elsewhere"
        ) from error
