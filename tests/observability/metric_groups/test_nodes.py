"""The metrics of nodes on demand: what was asked for, came, is emptied or is late."""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import NodeRequest
from edl.model.names import JobKey
from edl.model.plan import Certificate, ScalePlan
from edl.model.pods import Pod
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_shape, make_snapshot


def request(name: str, *, node: str = "", terminating: bool = False) -> NodeRequest:
    pod = Pod("default", name, name, make_shape(), node=node, terminating=terminating)
    return NodeRequest(JobKey("default", "a"), "spot", pod)


def test_requests_idle_nodes_and_resting_groups_are_counted() -> None:
    metrics, empty = Metrics(), ScalePlan((), Certificate("fulfilment", 0.0, 0.0))
    requests = (request("0"), request("1"), request("2", node="s"), request("3", terminating=True))
    snapshot = make_snapshot(nodes=())
    busy = replace(snapshot, node_requests=requests, idle_nodes=("x",), resting_groups=(("spot", 5.0),))
    for seen, values in ((busy, (2.0, 1.0, 1.0, 1.0)), (snapshot, (0.0, 0.0, 0.0, 0.0))):
        metrics.planned(seen, empty)
        value = metrics.registry.get_sample_value
        states = [value("edl_node_requests", {"state": state}) for state in ("open", "bound")]
        assert (*states, value("edl_idle_nodes"), value("edl_resting_node_groups")) == values
