"""What pasted text costs ends with its own process: the page says so, and answers the next one."""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from types import SimpleNamespace

import pytest

from edl.dashboard import what_if
from edl.dashboard.calculator import Calculator
from edl.dashboard.what_if import BoundedProcess, Bounds, Question
from edl.errors import ConfigError, PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from tests.browser.page_cluster import PASTED
from tests.worlds.builders import make_job, make_nodes

SMALL = ClusterSnapshot(1000.0, nodes=make_nodes(2), jobs=(make_job("ctr"),))
MANY = tuple(make_job(f"j{number}", cpu=0.1 + number / 1000) for number in range(1500))
LARGE = ClusterSnapshot(1000.0, nodes=make_nodes(4000), jobs=MANY)
"""To plan for it takes seconds of processor time."""


def asked(snapshot: ClusterSnapshot = SMALL, text: str = PASTED) -> Question:
    return Question(snapshot, text, "", Limits())


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        (Bounds(cpu_s=0), "took more than 0 s of processor time"),
        (Bounds(memory_bytes=4 * 1024**2), "needed more than 4 MiB of memory"),
        (Bounds(wall_s=0.05), "took longer than 0.05 s"),
    ],
)
def test_what_exceeds_a_bound_is_ended_and_the_asker_is_told(bounds: Bounds, says: str) -> None:
    with pytest.raises(ConfigError, match=f"the calculation was ended: it {says}.*; paste fewer or smaller jobs"):
        BoundedProcess(bounds).run(asked(LARGE))


async def test_the_page_answers_after_a_calculation_was_killed() -> None:
    calculator = Calculator("", Limits, bounds=Bounds(wall_s=0.05))
    with pytest.raises(ConfigError, match="was ended"):
        await calculator.what_if(SMALL, PASTED)
    assert (await calculator.plan(SMALL)).decisions
    calculator._bounds = Bounds()
    assert (await calculator.what_if(SMALL, PASTED))["jobs"]
    calculator.close()


def test_an_error_of_the_text_arrives_as_it_is() -> None:
    with pytest.raises(ConfigError, match="the pasted text is empty"):
        BoundedProcess(Bounds()).run(asked(text=" "))


def test_an_error_of_the_plan_arrives_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Question) -> None:
        raise PlanError("no plan today")

    monkeypatch.setattr(what_if, "answer", refuse)
    monkeypatch.setattr(what_if, "_limit", lambda _: None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(pickle.dumps((Bounds(), asked())))))
    what_if.main()
    with pytest.raises(PlanError, match="no plan today"):
        BoundedProcess(Bounds())._read(capsys.readouterr().out.encode(), 0)


def test_a_process_that_is_ended_by_somebody_else_answers_nothing() -> None:
    process = BoundedProcess(Bounds())
    with pytest.raises(ConfigError, match="was ended"):
        process._read(b"", -9)
    process.end()


@pytest.mark.parametrize("written", [b"", b"[]", b'{"answer": 3}', b"[" * 10_000, b'{"config": {}}', b"\xff"])
def test_an_answer_that_is_none_is_not_believed(written: bytes) -> None:
    with pytest.raises(ConfigError, match="the calculation was ended"):
        BoundedProcess(Bounds())._read(written, 0)
