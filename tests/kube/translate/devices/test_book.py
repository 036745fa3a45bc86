"""Which devices are of which kind: read in shares of time, which go on from one snapshot to the next."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from edl.kube.translate.devices.asks import Kind, UncountedClaimError
from edl.kube.translate.devices.book import READ_OF_NAMESPACE_S, SLOW_S, TRIES, DeviceBook
from edl.kube.translate.devices.objects import ResourceSliceObject
from edl.kube.translate.devices.selectors import SelectorError
from tests.worlds.builders import make_node
from tests.worlds.rules.device_scenes import CLASS, DRIVER, slices

COUNT = 1000
NODES = tuple(make_node(f"n{i}") for i in range(10))
OFFERED = tuple(msgspec.convert(one, ResourceSliceObject) for one in slices(len(NODES), COUNT // len(NODES)))
ALL = Kind(CLASS, (f'device.driver == "{DRIVER}"',))


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> DeviceBook:
    """A book on whose clock a look takes four thousandths of what a namespace has for a snapshot."""
    ticks = itertools.count()
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: next(ticks) * READ_OF_NAMESPACE_S / 250)
    return DeviceBook()


def test_a_kind_that_takes_longer_than_a_share_is_read_over_several_snapshots(book: DeviceBook) -> None:
    for _ in range(3):
        book.update(OFFERED, NODES)
        with pytest.raises(UncountedClaimError, match="edl reads other kinds of devices first"):
            book.of_kind(ALL, "ads")
        book.forget_all_but([])
    book.update(OFFERED, NODES)
    assert sum(map(len, book.of_kind(ALL, "ads").values())) == COUNT


def test_a_namespace_that_has_had_its_share_takes_nothing_of_that_of_another(book: DeviceBook) -> None:
    few = OFFERED[:1]
    book.update(few, NODES)
    many = [Kind(CLASS, (f"device.driver != '{number}'",)) for number in range(3)]
    for kind in many[:2]:
        book.of_kind(kind, "many")
    with pytest.raises(UncountedClaimError):
        book.of_kind(many[2], "many")
    assert sum(map(len, book.of_kind(ALL, "few").values())) == COUNT // len(NODES)
    book.update(few, NODES)
    assert [sum(map(len, book.of_kind(kind, "many").values())) for kind in many] == [100] * 3, "and it goes on"


@pytest.mark.parametrize(("took_ms", "looks"), [(3, 1 + TRIES), (20, 2)])
def test_a_slow_selector_is_timed_a_few_times_and_then_never_again(
    book: DeviceBook, monkeypatch: pytest.MonkeyPatch, took_ms: float, looks: int
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: next(ticks) * took_ms / 1e3)
    for _ in range(3):
        book.update(OFFERED, NODES)
        with pytest.raises(SelectorError, match=rf"takes {took_ms}\.0 ms for one device, and edl evaluates those"):
            book.of_kind(ALL, "ads")
    assert next(ticks) == 2 * looks, "each look has a beginning and an end"


def test_a_selector_that_a_busy_machine_made_slow_for_a_while_is_read(
    book: DeviceBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.accumulate(itertools.chain([0.0], [1.5 * SLOW_S, 0.0] * TRIES, itertools.repeat(0.0)))
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: next(times))
    book.update(OFFERED, NODES)
    assert sum(map(len, book.of_kind(ALL, "ads").values())) == COUNT


def test_a_selector_that_is_slow_once_alone_is_read(book: DeviceBook, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled when it is read for the first time."""
    times = itertools.chain([0.0, 1000 * SLOW_S], itertools.repeat(1000 * SLOW_S))
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: next(times))
    monkeypatch.setattr("edl.kube.translate.devices.book.READ_OF_NAMESPACE_S", 1e6)
    monkeypatch.setattr("edl.kube.translate.devices.book.READ_S", 1e6)
    book.update(OFFERED, NODES)
    assert sum(map(len, book.of_kind(ALL, "ads").values())) == COUNT
