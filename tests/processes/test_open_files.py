"""The limit of open files: raised as far as wanted and allowed, and never lowered."""

from __future__ import annotations

import resource

import pytest

from edl.processes.open_files import raise_file_limit

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ((512, 700), 600, (600, 700)),
        ((512, 700), 9999, (700, 700)),
        ((512, 700), 256, (512, 700)),
        ((700, 700), 9999, (700, 700)),
        ((512, UNLIMITED), 9999, (9999, UNLIMITED)),
        ((9999, UNLIMITED), 512, (9999, UNLIMITED)),
    ],
)
def test_the_limit_becomes_what_is_wanted_within_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], wanted: int, after: tuple[int, int]
) -> None:
    limits = {resource.RLIMIT_NOFILE: before}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    raise_file_limit(wanted)
    assert limits == {resource.RLIMIT_NOFILE: after}
