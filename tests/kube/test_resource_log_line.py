from __future__ import annotations

from typing import Any

from edl.kube.resource_log_line import resource_log_line
from edl.kube.translate.decoders import NODES, PODS, Quarantined
from edl.kube.translate.objects import NodeObject, PodObject


def node(name: str, **allocatable: str) -> NodeObject:
    found = NODES.from_dict({"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    assert not isinstance(found, Quarantined)
    return found


def pod(*containers: dict[str, Any], on: str = "", phase: str = "Running", init: Any = None) -> PodObject:
    spec = {"nodeName": on, "containers": [{"resources": c} for c in containers], "initContainers": init}
    found = PODS.from_dict({"spec": spec, "status": {"phase": phase}})
    assert not isinstance(found, Quarantined)
    return found


def test_the_line_equals_that_of_the_original_project() -> None:
    nodes = [
        node("node-2", cpu="4", memory="8Gi"),
        node("node-1", cpu="2", memory="2041112Ki", **{"nvidia.com/gpu": "1"}),
    ]
    pods = [
        pod(
            {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
            {"requests": {"cpu": "5m", "memory": "50Mi"}},
            on="node-1",
        ),
        pod({"requests": {"cpu": "1", "alpha.kubernetes.io/nvidia-gpu": "1"}, "limits": {"cpu": "2"}}),
        pod({"requests": {"cpu": "64"}}, on="node-1", phase="Succeeded"),
    ]
    assert resource_log_line(nodes, pods) == (
        "{NodeCount:2 GPURequest:1 GPULimit:0 GPUTotal:1 "
        "CPURequestMilli:1105 CPULimitMilli:2000 CPUTotalMilli:6000 "
        "MemoryRequestMega:126 MemoryLimitMega:179 MemoryTotalMega:10681 "
        "Nodes:{NodesCPUIdleMilli:map[node-1:1895 node-2:4000] NodesMemoryFreeMega:map[node-1:1964 node-2:8590]}}"
    )


def test_totals_are_rounded_once_and_the_maps_per_container() -> None:
    tiny = {"requests": {"memory": "1"}}
    line = resource_log_line([node("n", memory="10M")], [pod(tiny, tiny, tiny, on="n")])
    assert "MemoryRequestMega:1 " in line
    assert "NodesMemoryFreeMega:map[n:7]" in line


def test_init_containers_count_and_a_pod_on_an_unknown_node_adds_no_node() -> None:
    init = [{"resources": {"requests": {"cpu": "1"}}}]
    line = resource_log_line([], [pod({"requests": {"cpu": "2"}}, init=init, on="gone")])
    assert "NodeCount:0" in line
    assert "CPURequestMilli:3000" in line
    assert line.endswith("Nodes:{NodesCPUIdleMilli:map[] NodesMemoryFreeMega:map[]}}")


def test_the_maps_hold_at_most_fifty_nodes_and_the_totals_count_all() -> None:
    line = resource_log_line([node(f"n{i:03d}", cpu="1") for i in range(60)], [])
    assert "NodeCount:60" in line
    assert "n049:1000]" in line
    assert "n050" not in line


def test_an_unreadable_quantity_counts_as_zero() -> None:
    assert "CPURequestMilli:0" in resource_log_line([node("n", cpu="x")], [pod({"requests": {"cpu": "many"}})])
