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


def test_says_what_the_original_said() -> None:
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
    said = resource_log_line([node("n", memory="10M")], [pod(tiny, tiny, tiny, on="n")])
    assert "MemoryRequestMega:1 " in said
    assert "NodesMemoryFreeMega:map[n:7]" in said


def test_init_containers_count_and_pods_on_unknown_nodes_do_not_invent_one() -> None:
    init = [{"resources": {"requests": {"cpu": "1"}}}]
    said = resource_log_line([], [pod({"requests": {"cpu": "2"}}, init=init, on="gone")])
    assert "NodeCount:0" in said
    assert "CPURequestMilli:3000" in said
    assert said.endswith("Nodes:{NodesCPUIdleMilli:map[] NodesMemoryFreeMega:map[]}}")


def test_names_at_most_fifty_nodes_and_counts_all() -> None:
    said = resource_log_line([node(f"n{i:03d}", cpu="1") for i in range(60)], [])
    assert "NodeCount:60" in said
    assert "n049:1000]" in said
    assert "n050" not in said


def test_what_cannot_be_read_counts_as_none() -> None:
    assert "CPURequestMilli:0" in resource_log_line([node("n", cpu="x")], [pod({"requests": {"cpu": "many"}})])
