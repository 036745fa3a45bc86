"""The planted bugs fit the code and the tests, and a few of them are caught. `make planted` plants them all."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.planted import Bug, targets
from tests.planted.bugs import BUGS
from tests.planted.install import BROKEN, REACHED, find, noted, resolve, swapped
from tests.planted.run import ROOT, Verdict, judge, run_with
from tests.planted.run import pytest as run_pytest

QUICK = (
    "lifecycle:transition_time_renewed",
    "planner:forbidden_move",
    "histories:serving_waits_for_ever",
    "kube:lease_taken_too_soon",
    "ledger:batch_acknowledged_too_soon",
    "pod:wrong_exit_code",
)
TARGETS = {name: value for name, value in vars(targets).items() if name.isupper()}


@cache
def names_in(file: Path) -> frozenset[str]:
    """The test functions and classes of a file, and the names that it assigns, as a state machine's tests."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_changes_what_it_names_and_the_test_that_catches_it_exists(bug: Bug) -> None:
    _, _, right = resolve(bug.target)
    assert bug.plant(right) != right
    file, _, test = bug.caught_by.partition("::")
    path, name = ROOT / "tests" / file, test.partition("[")[0]
    exists = path.is_file() and (not name or name in names_in(path))
    assert exists, f"there is no test {bug.caught_by}; name another one"


def test_pytest_finds_each_test_that_catches_a_bug_with_its_parameters() -> None:
    found = run_pytest(sorted({f"tests/{bug.caught_by}" for bug in BUGS}), {}, "--collect-only")
    assert found.returncode == 0, found.stdout[-2000:]


def test_every_bug_has_a_name_and_every_target_a_bug() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(find(bug.name) is bug for bug in BUGS)
    # Replaced while another function runs; one that does not exist would fail a test, and count as caught.
    helpers = {targets.FROM_WORST, targets.GAIN_OF_WORST, targets.QUOTA_SHORTAGE}
    assert {*TARGETS.values()} - helpers == {bug.target for bug in BUGS}
    assert all(callable(resolve(target)[2]) for target in helpers)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(name: str) -> None:
    result = run_with(find(name))
    assert (result.verdict, result.why) == (Verdict.CAUGHT, "")


def done(code: int) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "1 test", "")


def test_a_bug_counts_as_caught_only_if_a_test_fails_because_of_it() -> None:
    bug, constant = find("planner:forbidden_move"), find("planner:moves_pay")
    assert judge(bug, done(1), [REACHED]) == (Verdict.CAUGHT, "")
    assert judge(constant, done(1), []) == (Verdict.CAUGHT, "")
    assert judge(bug, done(0), [REACHED])[0] is Verdict.MISSED
    assert judge(bug, done(1), [])[0] is Verdict.BROKEN, "the test fails for another reason"
    assert judge(bug, done(4), [])[0] is Verdict.BROKEN, "there is no such test"
    assert judge(bug, done(1), [REACHED, f"{BROKEN} TypeError()"])[0] is Verdict.BROKEN


def test_a_bug_that_no_longer_fits_its_target_says_so(tmp_path: Path) -> None:
    def wrong(job: Any) -> Any:
        return job.a_field_that_was_renamed

    wrong.__code__ = wrong.__code__.replace(co_filename=str(ROOT / "tests" / "planted" / "lifecycle.py"))
    with pytest.raises(AttributeError):
        noted(wrong, str(tmp_path / "notes"))(object())
    assert [line.split()[0] for line in (tmp_path / "notes").read_text().splitlines()] == [REACHED, BROKEN]


def test_a_function_is_replaced_where_it_was_imported_too() -> None:
    importer = import_module("edl.lifecycle.desired_state")
    _, name, right = resolve(targets.DESCRIBE)
    with swapped(targets.DESCRIBE, lambda _: lambda *_: None):
        assert vars(importer)[name] is resolve(targets.DESCRIBE)[2] is not right
    assert vars(importer)[name] is resolve(targets.DESCRIBE)[2] is right
