"""The list of planted bugs is about the code and the tests as they are; `make planted` plants them."""

from __future__ import annotations

import pytest

from tests.planted import Bug
from tests.planted.__main__ import ROOT
from tests.planted.bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_the_place_of_a_planted_bug_and_the_test_that_catches_it_exist(bug: Bug) -> None:
    assert (ROOT / "edl" / bug.file).read_text().count(bug.right) == 1
    file, _, test = bug.caught_by.partition("::")
    source = (ROOT / "tests" / file).read_text()
    name = test.partition("[")[0]
    assert not name or name in source
