"""Claims of one namespace on more devices than there are, and with slow selectors: they cost nobody anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.faults.leading import leading, mallory
from tests.e2e.faults.stage import GROWN, SMALL, Stage
from tests.e2e.worlds.jobs import training_job
from tests.worlds.rules.device_scenes import device, device_class, request, slice_of, template, uses

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("the real API server says which claims and selectors exist at all")
DEVICES = 100
"""Of each node."""
SLOW = " && ".join(["!'a'.matches('a{1000}')"] * 40)
"""Some ten milliseconds for each device, because each pattern is compiled anew."""
LARGE = {"cpu": "64", "memory": "64Mi"}
"""More than a node has: such a job gets no pods."""
ASKS: dict[str, tuple[Object, str]] = {
    "a-many": (request(10**12), "asks for 1000000000000 devices, and a claim gets at most 32"),
    "a-most": (request(2**63 - 1), "asks for 9223372036854775807 devices, and a claim gets at most 32"),
    "a-slow": (
        request(selectors=[{"cel": {"expression": SLOW}}]),
        "for one device, and edl evaluates those that take",
    ),
}
KINDS = 40
"""Of selectors besides, each for a job of its own; edl reads those of the first ones of a namespace."""
MOST_MIB = 300.0
WITHIN_S = 60.0


@pytest.fixture
def devices(stage: Stage) -> Iterator[None]:
    """A class of devices, and some of them on each node."""
    kube = stage.here.kube
    nodes = [node["metadata"]["name"] for node in kube.list("nodes")]
    bodies = [device_class(), *(slice_of(name, *(device(f"gpu-{k}") for k in range(DEVICES))) for name in nodes)]
    for body in bodies:
        kube.create(body)
    yield
    for body in bodies:
        kube.delete(body["kind"], body["metadata"]["name"])


def asking(stage: Stage, space: str, name: str, asked: Object, amounts: dict[str, str]) -> None:
    """Create a job whose trainers ask for devices."""
    made = template(asked, name=name)
    del made["metadata"]["namespace"]
    stage.here.kube.create(made, space)
    job = training_job(name, min_trainers=1, max_trainers=2, trainer={"template": {"spec": uses(name)}}, **amounts)
    stage.here.kube.create({**job, "metadata": {"name": name}}, space)


def untold(stage: Stage, space: str) -> dict[str, str]:
    """What the jobs are told that are not told yet why they get no devices."""
    told = {name: str(stage.condition(name, "Admitted", space).get("message", "")) for name in ASKS}
    return {name: text for name, text in told.items() if ASKS[name][1] not in text}


@pytest.mark.usefixtures("devices")
def test_claims_on_all_devices_of_the_world_cost_nobody_anything(stage: Stage) -> None:
    kube = stage.here.kube
    with mallory(stage) as space, leading(stage, stage.account) as leader:
        for name, (asked, _) in ASKS.items():
            asking(stage, space, name, asked, SMALL)
        for number in range(KINDS):
            selector = {"cel": {"expression": f'device.driver != "{number}"'}}
            asking(stage, space, f"kind-{number}", request(selectors=[selector]), LARGE)
        kube.create(template(name="one-gpu"))
        stage.submit("with-devices", trainer={"template": {"spec": uses()}})
        stage.wait_grown("with-devices")
        kube.wait_until(lambda: not untold(stage, space), WITHIN_S, "they are told why")
        for name in ASKS:
            assert not kube.list("pods", space, labels=f"paddlepaddle.org/job={name}")
        leader.assert_led(MOST_MIB)
        print(f"{leader.peak_bytes / 2**20:.0f} MiB")
        assert stage.here.running("with-devices") == GROWN
        kube.delete("trainingjobs", "with-devices")
        kube.delete("resourceclaimtemplates", "one-gpu")
    stage.assert_steady()
