"""The list of libraries of the controller's image."""

from __future__ import annotations

import json

import pytest

from tools.sbom import LOCK, bill_of_materials, read_lock

TEXT = """\
aiohttp==3.1 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via edl (pyproject.toml)
numpy==2.4 ; python_full_version < '3.12' \\
    --hash=sha256:cc
    # via
    #   aiohttp
    #   edl (pyproject.toml)
"""


def test_a_lock_is_read_with_hashes_conditions_and_who_needs_what() -> None:
    one, two = read_lock(TEXT)
    assert (one.name, one.version, one.hashes, one.needed_by) == (
        "aiohttp",
        "3.1",
        ("sha256:aa", "sha256:bb"),
        ("edl (pyproject.toml)",),
    )
    assert (two.marker, two.hashes) == ("python_full_version < '3.12'", ("sha256:cc",))
    assert two.needed_by == ("aiohttp", "edl (pyproject.toml)")


def test_a_line_that_no_lock_has_is_an_error() -> None:
    with pytest.raises(ValueError, match="aiohttp>=3"):
        read_lock("aiohttp>=3\n")


def test_the_document_says_which_library_needs_which() -> None:
    document = bill_of_materials(read_lock(TEXT))
    needs = {entry["ref"]: entry["dependsOn"] for entry in document["dependencies"]}
    edl = document["metadata"]["component"]["bom-ref"]
    assert needs[edl] == ["pkg:pypi/aiohttp@3.1", "pkg:pypi/numpy@2.4"]
    assert needs["pkg:pypi/aiohttp@3.1"] == ["pkg:pypi/numpy@2.4"]
    assert needs["pkg:pypi/numpy@2.4"] == []


def test_the_document_of_the_repository_lists_each_library_once_and_is_the_same_each_time() -> None:
    pins = read_lock(LOCK.read_text())
    document = bill_of_materials(pins)
    assert json.dumps(document) == json.dumps(bill_of_materials(pins))
    refs = [component["bom-ref"] for component in document["components"]]
    assert len(refs) == len(set(refs)) == len(pins) > 20
