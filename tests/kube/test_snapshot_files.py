from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.kube.snapshot_files.saved_cluster import READ, SavedCluster, read_snapshot_files, read_snapshot_texts
from edl.kube.translate.admission.objects import ADMISSION
from edl.kube.translate.decoders import POD_GROUPS, VOLCANO_QUEUES
from edl.kube.workloads.registry import ADAPTERS
from edl.model.cluster import ClusterSnapshot

NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ads"}}


def read(folder: Path, *texts: str, suffix: str = "yaml") -> SavedCluster:
    names = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.{suffix}"
        path.write_text(text)
        names.append(str(path))
    return read_snapshot_files(names)


def snapshot(folder: Path, *texts: str, suffix: str = "yaml") -> ClusterSnapshot:
    taken, left_out = read(folder, *texts, suffix=suffix).snapshot()
    assert left_out == ()
    return taken


def test_yaml_of_several_documents_and_lists_is_read(tmp_path: Path) -> None:
    text = f"---\n---\n{json.dumps(NODE)}\n---\napiVersion: v1\nkind: List\nitems:\n- {json.dumps(POD)}\n...\n"
    taken = snapshot(tmp_path, text)
    assert [n.name for n in taken.nodes] == ["n1"]
    assert [p.name for p in taken.pods] == ["p"]


def test_concatenated_json_values_are_read(tmp_path: Path) -> None:
    taken = snapshot(tmp_path, json.dumps(NODE) + "\n" + json.dumps(POD), suffix="json")
    assert len(taken.nodes) == len(taken.pods) == 1


def test_items_of_a_typed_list_inherit_its_kind(tmp_path: Path) -> None:
    nodes = {
        "apiVersion": "v1",
        "kind": "NodeList",
        "items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}],
    }
    assert len(snapshot(tmp_path, json.dumps(nodes)).nodes) == 2


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_list_is_an_empty_cluster(tmp_path: Path, items: object) -> None:
    assert snapshot(tmp_path, json.dumps({"apiVersion": "v1", "kind": "List", "items": items})).nodes == ()


def test_flow_style_yaml_is_not_mistaken_for_json(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    assert len(read_snapshot_files([str(path)]).snapshot()[0].nodes) == 1


def test_standard_input_is_read_once() -> None:
    saved = read_snapshot_files(["-"], read_stdin=lambda: json.dumps(NODE).encode())
    assert len(saved.objects) == 1
    with pytest.raises(ConfigError, match="-f - is given more than once"):
        read_snapshot_files(["-", "-"], read_stdin=lambda: b"{}")


def test_kinds_that_a_plan_does_not_need_are_ignored(tmp_path: Path) -> None:
    others = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "example.org/v1", "kind": "Node", "metadata": {"name": "n"}},
        {"apiVersion": "v1", "kind": "Status"},
        {"apiVersion": "v1", "kind": "EventList", "items": []},
    ]
    assert read(tmp_path, *map(json.dumps, others)).objects == {}


def test_a_later_file_replaces_the_object_of_the_same_name(tmp_path: Path) -> None:
    cordoned = {**NODE, "spec": {"unschedulable": True}}
    assert [n.cordoned for n in snapshot(tmp_path, json.dumps(NODE), json.dumps(cordoned)).nodes] == [True]
    assert [n.cordoned for n in snapshot(tmp_path, json.dumps(cordoned), json.dumps(NODE)).nodes] == [False]


def test_a_job_that_a_later_file_replaces_is_named_with_the_remedy(tmp_path: Path) -> None:
    job = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": "ctr"}, "spec": {}}
    other, changed = {**job, "metadata": {"name": "other"}}, {**job, "spec": {"image": "x"}}
    (warning,) = read(tmp_path, json.dumps(job), json.dumps(changed)).replaced_jobs()
    assert warning.startswith("job default/ctr of ")
    assert "is replaced by" in warning
    assert warning.endswith("to plan for both, give the new one another name")
    assert not list(read(tmp_path, json.dumps(job), json.dumps(other)).replaced_jobs())
    assert not list(read(tmp_path, json.dumps(job), json.dumps(job)).replaced_jobs())


def test_objects_differ_by_namespace_and_a_missing_namespace_is_default(tmp_path: Path) -> None:
    nameless = {**POD, "metadata": {"name": "p"}}
    default = {**POD, "metadata": {"name": "p", "namespace": "default"}}
    taken = snapshot(tmp_path, json.dumps(POD), json.dumps(nameless), json.dumps(default))
    assert [p.namespace for p in taken.pods] == ["ads", "default"]


def test_now_is_the_newest_time_in_the_input(tmp_path: Path) -> None:
    old = {**NODE, "metadata": {"name": "n1", "creationTimestamp": "1970-01-01T00:00:10Z"}}
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:01:00Z"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "lastTimestamp": "1970-01-01T00:01:30+00:00",
    }
    assert snapshot(tmp_path, json.dumps(old)).observed_at_s == 10
    assert snapshot(tmp_path, json.dumps({**old, "status": {"conditions": [beat]}})).observed_at_s == 60
    assert snapshot(tmp_path, json.dumps(event), json.dumps(old)).observed_at_s == 90


def test_a_time_in_a_label_or_annotation_or_message_is_not_now(tmp_path: Path) -> None:
    late = "2099-01-01T00:00:00Z"
    metadata = {"name": "n1", "annotations": {"expiresAt": late}, "labels": {"endTime": late}}
    taken = snapshot(tmp_path, json.dumps({**NODE, "metadata": metadata, "status": {"message": late}}))
    assert taken.observed_at_s == 0


def test_now_can_be_given(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(NODE)).snapshot(5.0)[0].observed_at_s == 5.0


def test_yaml_is_read_as_kubernetes_reads_it(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: Node
metadata:
  name: n1
  creationTimestamp: 1970-01-01T00:00:10Z
  labels: {a: yes, b: on, c: 0o17, d: 1e3, e: 08, f: 12:30:45, g: 1_000, h: true, i: 3, j: ~, k: 0x1f, l: 1970-01-01}
"""
    taken = snapshot(tmp_path, text)
    assert dict(taken.nodes[0].labels) == {
        "a": "yes",
        "b": "on",
        "c": "0o17",
        "d": "1e3",
        "e": "08",
        "f": "12:30:45",
        "g": "1_000",
        "h": "true",
        "i": "3",
        "j": "",
        "k": "0x1f",
        "l": "1970-01-01",
    }
    assert taken.observed_at_s == 10


def test_anchors_and_merge_keys_are_followed(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n"
        "- &n {apiVersion: v1, kind: Node, metadata: {name: n1}}\n- {<<: *n, metadata: {name: n2}}\n"
    )
    assert [n.name for n in snapshot(tmp_path, text).nodes] == ["n1", "n2"]


def test_merged_keys_can_be_overridden_and_come_from_several_mappings(tmp_path: Path) -> None:
    text = (
        "a: &a {apiVersion: v2}\nb: &b {kind: Node}\n"
        "<<: *a\n<<: *b\napiVersion: v1\nmetadata: {name: n1, labels: {<<: {x: one}, x: two}}\n"
    )
    taken = snapshot(tmp_path, text)
    assert [n.labels for n in taken.nodes] == [(("x", "two"),)]


def test_aliases_that_expand_without_limit_are_an_error(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ConfigError, match="too large after its YAML aliases are expanded"):
        read(tmp_path, "apiVersion: v1\nkind: Node\n" + "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "suffix", "says"),
    [
        ("", "yaml", "0.yaml contains no object"),
        ("# only words\n", "yaml", "0.yaml contains no object"),
        ("a: b\nc: [1,\nd: e: f]\n", "yaml", r"0.yaml, line 3, column 5: not YAML"),
        (
            "a: !!python/object:os.system x",
            "yaml",
            "0.yaml, line 1, column 4: not YAML: could not determine a constructor",
        ),
        ("a: \x07", "yaml", "0.yaml: not YAML: unacceptable character"),
        ('{"a": 1,\n "b": }', "json", "0.json, line 2, column 7: not JSON: Expecting value"),
        ('{"apiVersion": "v1"} {', "json", "0.json, line 1, column 23: not JSON"),
        ('{"a": NaN}', "json", "0.json, document 1: not JSON: NaN is not a JSON number"),
        ("[" * 100_000, "json", "not JSON"),
        ("- " * 100_000, "yaml", "not YAML"),
        ("{a: " * 100_000, "yaml", "not YAML"),
        ("just words", "yaml", "0.yaml: 'just words' is not a Kubernetes object"),
        ("[1]", "json", r"0.json: '\[1\]' is not a Kubernetes object; write apiVersion, kind and metadata"),
        ("kind: Node\nmetadata: {name: n1}", "yaml", r"0.yaml: an object \(Node n1\) has no apiVersion; add it"),
        ("apiVersion: v1\nmetadata: {name: n1}", "yaml", r"0.yaml: an object \(n1\) has no kind; add it"),
        ("apiVersion: v1\nkind: 3", "yaml", "0.yaml: an object has no kind; add it"),
        ("apiVersion: v1\nkind: Node", "yaml", "0.yaml: a Node has no metadata.name; give it one"),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: ''}",
            "yaml",
            "0.yaml: a Node has no metadata.name; give it one",
        ),
        (
            "apiVersion: v2\nkind: Pod\nmetadata: {name: p}",
            "yaml",
            "a Pod has apiVersion v2, which edl does not read; save it as v1",
        ),
        (
            "apiVersion: apps/v1beta1\nkind: DaemonSet",
            "yaml",
            "apiVersion apps/v1beta1, which edl does not read; save it as apps/v1",
        ),
        ("apiVersion: v1\nkind: List\nitems: {a: b}", "yaml", "0.yaml: the items of a List are .*; write a list"),
        ("apiVersion: v1\nkind: List\nitems: [3]", "yaml", "0.yaml, item 1: '3' is not a Kubernetes object"),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: Node}]",
            "yaml",
            "0.yaml, item 1: an object has no apiVersion; add it, as kubectl prints it",
        ),
        ("a: 1\n---\n- 2", "yaml", "0.yaml: an object has no apiVersion"),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\n- 2",
            "yaml",
            r"0.yaml, document 2: '\[2\]' is not a Kubernetes object",
        ),
        (
            "apiVersion: paddlepaddle.org/v2\nkind: TrainingJob\nmetadata: {name: j}",
            "yaml",
            "apiVersion paddlepaddle.org/v2, which edl does not read; save it as paddlepaddle.org/v1",
        ),
        (
            "apiVersion: paddlepaddle.org\nkind: TrainingJob\nmetadata: {name: j}",
            "yaml",
            "a TrainingJob has apiVersion paddlepaddle.org, which edl does not read; save it as paddlepaddle.org/v1",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n}}\n---\n"
            "apiVersion: paddlepaddle.org/v1\nkind: TrainingJobb\nmetadata: {name: j}",
            "yaml",
            "0.yaml, document 2: kind 'TrainingJobb' is unknown in paddlepaddle.org; write TrainingJob or Queue, with"
            " apiVersion paddlepaddle.org/v1",
        ),
        (
            "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels: {a: b}\n  name: m\n",
            "yaml",
            "0.yaml, line 6: 'name' appears twice; keep one of them",
        ),
        (
            "kind: Node\napiVersion: v1\n'kind': Pod\n",
            "yaml",
            "0.yaml, line 3: 'kind' appears twice; keep one of them",
        ),
        (
            '{"apiVersion": "v1", "kind": "Node"} {"a": [{"kind": 1, "kind": 2}]}',
            "json",
            "0.json, document 2: 'kind' appears twice; keep one of them",
        ),
    ],
)
def test_an_unreadable_file_is_a_one_line_error_with_file_and_position(
    tmp_path: Path, text: str, suffix: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, text, suffix=suffix)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_and_a_binary_file_are_errors_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/nowhere/x cannot be read: No such file or directory; give"):
        read_snapshot_files(["/nowhere/x"])
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_snapshot_files([str(tmp_path)])
    (tmp_path / "b").write_bytes(b"kind: \xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 6\)"):
        read_snapshot_files([str(tmp_path / "b")])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_snapshot_files(["a\x00b"])


def test_an_object_with_invalid_fields_is_left_out_and_reported(tmp_path: Path) -> None:
    saved = read(tmp_path, json.dumps(NODE), json.dumps({**POD, "spec": {"containers": 3}}))
    taken, left_out = saved.snapshot()
    assert len(taken.nodes) == 1
    assert [str(one) for one in left_out] == [
        f"{tmp_path}/1.yaml: Pod ads/p is left out: Expected `array | null`, got `int` - at `$.spec.containers`"
    ]


def test_an_object_with_invalid_quantities_is_reported_with_its_position(tmp_path: Path) -> None:
    lots = {"resources": {"requests": {"cpu": "lots"}}}
    pods = {
        "apiVersion": "v1",
        "kind": "PodList",
        "items": [POD, {"metadata": {"name": "q"}, "spec": {"containers": [lots]}}],
    }
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [lots]}}},
    }
    node = {**NODE, "status": {"allocatable": {"cpu": "lots"}}}
    documents = "\n---\n".join(map(json.dumps, (node, daemon)))
    _, left_out = read(tmp_path, json.dumps(pods), json.dumps(NODE), documents).snapshot()
    assert [str(one).partition(" is left out: cpu 'lots'")[0] for one in left_out] == [
        f"{tmp_path}/0.yaml, item 2: Pod q",
        f"{tmp_path}/2.yaml, document 2: DaemonSet default/d",
        f"{tmp_path}/2.yaml: Node n1",
    ]


def test_a_job_in_the_namespace_of_the_controller_is_invalid_as_in_the_controller(tmp_path: Path) -> None:
    trainer = {"entrypoint": "train", "min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "1"}}}
    job = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "spec": {"trainer": trainer}}
    invalid, valid = ({**job, "metadata": {"name": "j", "namespace": ns}} for ns in ("paddlecloud", "ads"))
    taken = snapshot(tmp_path, json.dumps(invalid), json.dumps(valid))
    assert [(j.key.namespace, j.problem) for j in taken.jobs] == [
        ("ads", ""),
        ("paddlecloud", "namespace paddlecloud is reserved for the controller; use another namespace"),
    ]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(NODE).encode())
    assert len(read_snapshot_files([str(path)]).objects) == 1


DOCS = Path(__file__).parents[2]
KUEUE = "kueue.x-k8s.io/v1beta2"
SHORT = {
    "tj": "TrainingJob",
    "queues.paddlepaddle.org": "Queue",
    "pv": "PersistentVolume",
    "pvc": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "csistoragecapacities": "CSIStorageCapacity",
}
LISTED = [
    (page.name, line.split()[2])
    for page in (DOCS / "README.md", *sorted(DOCS.glob("docs/**/*.md")))
    for line in page.read_text().splitlines()
    if line.startswith("kubectl get nodes,")
]


@pytest.mark.parametrize("kinds", sorted({kinds for _, kinds in LISTED}))
def test_each_command_that_saves_a_cluster_saves_every_kind_that_is_read(kinds: str) -> None:
    """Workloads of others, Volcano, other PodGroups and Kueue are left out: a cluster may lack their resource.

    So are devices, which are in no API before Kubernetes 1.34, and webhooks and policies: a plan only warns of them,
    and not every user may list them.
    """
    plurals = {"priorityclasses": "PriorityClass"} | SHORT
    named = {plurals.get(one, one.removesuffix("s").lower()).lower() for one in kinds.split(",")}
    others = {adapter.decoder.kind for adapter in ADAPTERS.values()} | {kind for _, kind in ADMISSION}
    others |= {kind for api, kind in READ if api in {"resource.k8s.io/v1", KUEUE}}
    others |= {decoder.kind for decoder in POD_GROUPS.values()} | {VOLCANO_QUEUES.kind}
    assert named == {decoder.kind.lower() for decoder in READ.values()} - {kind.lower() for kind in others}


def test_such_commands_are_found() -> None:
    pages = {"plan.md", "read-a-decision.md", "troubleshooting.md", "certificate.md"}
    assert pages <= dict(LISTED).keys()


def keys(one: str, between: str, count: int) -> str:
    return between.join(one.format(number) for number in range(count))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (lambda: "a: 1\n" + keys("k{}: ", "\n", 300_000), "line 10001: one mapping has more than 10000 keys"),
        (lambda: "a: {" + keys("k{}: 1", ", ", 10_001) + "}", "line 1: one mapping has more than 10000 keys"),
        (lambda: json.dumps({"a": {f"k{i}": 1 for i in range(300_000)}}), "document 1: one mapping has more than"),
        (lambda: "{" + keys('"k{}": 1', ", ", 9_000) + ', "k9": 1}', "document 1: 'k9' appears twice"),
    ],
    ids=["YAML", "on one line", "JSON", "twice"],
)
def test_a_mapping_of_too_many_keys_is_refused_where_the_first_one_stands(text: Callable[[], str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_snapshot_texts([("many", text())])


def test_labels_up_to_the_limit_are_read() -> None:
    labels = "\n".join(f"    l{i}: x" for i in range(9_999))
    text = f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels:\n{labels}\n"
    assert len(read_snapshot_texts([("many", text)]).objects) == 1
