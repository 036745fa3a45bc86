"""The file of quotas: what is read, and the messages of invalid files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.kube.queue_file import read_queues, unmatched
from edl.model.limits import Quota
from tests.worlds.builders import make_job

GIB = 1024**3


def read(tmp_path: Path, text: str | bytes) -> tuple[Quota, ...]:
    path = tmp_path / "queues.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_queues(path)


BLUE_AND_GREEN = (
    Quota("blue", (("cpu", 1500), ("memory", 4 * GIB), ("nvidia.com/gpu", 8))),
    Quota("green", (("pods", 0),)),
)


@pytest.mark.parametrize(
    "text",
    [
        "green: {pods: 0}\nblue:\n  cpu: 1.5\n  memory: 4Gi\n  nvidia.com/gpu: 8\n",
        '{"green": {"pods": "0"}, "blue": {"cpu": "1500m", "memory": "4Gi", "nvidia.com/gpu": 8}}',
        "green: {pods: 0}\nblue: {cpu: 15e-1, memory: 4096Mi, alpha.kubernetes.io/nvidia-gpu: '8'}\n",
    ],
    ids=["yaml", "json", "old gpu"],
)
def test_queues_are_read_from_yaml_and_json(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == BLUE_AND_GREEN


def test_a_decimal_is_not_rounded_as_a_binary_fraction(tmp_path: Path) -> None:
    assert read(tmp_path, "a: {cpu: 0.1}") == (Quota("a", (("cpu", 100),)),)


def test_devices_and_pods_are_whole_numbers_in_any_notation_and_cores_and_bytes_may_be_fractions(
    tmp_path: Path,
) -> None:
    (quota,) = read(tmp_path, "a: {pods: 1k, example.org/fpga: 20e-1, hugepages-2Mi: 1.5Mi, cpu: 1.5}")
    assert dict(quota.amounts) == {"pods": 1000, "example.org/fpga": 2, "hugepages-2Mi": 1536 * 1024, "cpu": 1500}


def test_a_queue_without_a_quota_and_a_quota_without_a_job_are_reported() -> None:
    jobs = [replace(make_job(name), queue=queue) for name, queue in (("a", "red"), ("b", "red"), ("c", "blue"))]
    broken = replace(make_job("d"), queue="green", problem="its spec makes no sense")
    assert list(unmatched([Quota("blue", ()), Quota("gray", ())], [*jobs, broken], "q.yaml")) == [
        "queue red (job default/a and 1 more) is not in --queues q.yaml, so it has no quota",
        "queue gray of --queues q.yaml has no job, so its quota limits nothing",
    ]
    assert list(unmatched([Quota("blue", ())], jobs[1:], "q.yaml")) == [
        "queue red (job default/b) is not in --queues q.yaml, so it has no quota"
    ]
    assert list(unmatched([Quota(queue, ()) for queue in ("blue", "red")], jobs, "q.yaml")) == []


def test_the_default_queue_without_a_quota_is_mentioned_only_if_a_quota_has_no_job() -> None:
    unnamed, blue = make_job("a"), replace(make_job("b"), queue="blue")
    assert list(unmatched([Quota("blue", ())], [unnamed, blue], "q.yaml")) == []
    assert list(unmatched([Quota("blue", ())], [unnamed], "q.yaml")) == [
        "queue blue of --queues q.yaml has no job, so its quota limits nothing; jobs that name no queue are in"
        " queue default, which has no quota"
    ]
    assert list(unmatched([], [unnamed, blue], "q.yaml")) == [
        "queue blue (job default/b) is not in --queues q.yaml, so it has no quota"
    ]
    assert list(unmatched([], [unnamed, blue], "")) == [], "no file was given"
    assert list(unmatched([], [unnamed, blue], "q.yaml", ["blue"])) == []
    assert list(unmatched([Quota("blue", ())], [blue], "q.yaml", ["blue"])) == [
        "queue blue of --queues q.yaml is also a Queue object, which counts instead of the file"
    ]


def test_a_queue_may_have_no_limits(tmp_path: Path) -> None:
    assert read(tmp_path, "a: {}\n") == (Quota("a", ()),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; write QUEUE"),
        ("# nothing\n", "is empty"),
        ("- a\n", "line 1: queues must be a mapping"),
        ("a: 5\n", "line 1: queue a must be a mapping"),
        ("a:\n", "line 1: queue a must be a mapping"),
        ("a: {cpu: 1}\nb: {cpu: 1}\na: {cpu: 2}\n", "line 3: queues: 'a' appears twice"),
        ("a:\n  cpu: 1\n  cpu: 2\n", "line 3: queue a: 'cpu' appears twice"),
        ("a: {nvidia.com/gpu: 1, alpha.kubernetes.io/nvidia-gpu: 2}", "nvidia.com/gpu appears twice"),
        ("a: {cpu: -1}\n", "queue a: cpu '-1' is negative; write 0 or more"),
        ("a: {pods: 1.5}\n", "queue a: pods 1.5 is not a whole number; pods cannot be divided, write 0 or more"),
        ("a: {nvidia.com/gpu: 1500m}\n", "nvidia.com/gpu 1500m is not a whole number; devices cannot be divided"),
        ("a: {alpha.kubernetes.io/nvidia-gpu: '.5'}\n", "nvidia.com/gpu .5 is not a whole number"),
        ("a: {cpu: lots}\n", "queue a: cpu 'lots' is not a quantity"),
        ("a: {memory: 4Gib}\n", "memory '4Gib' is not a quantity"),
        ("a: {cpu: .nan}\n", "cpu '.nan' is not a quantity"),
        ("a: {cpu: null}\n", "cpu 'null' is not a quantity"),
        ("a: {cpu: [1]}\n", "cpu is not a quantity"),
        ("a: {bestEffort: yes}\n", "line 1: queue a: bestEffort is 'yes'; write Allowed or Refused"),
        ("a: {bestEffort: [Allowed]}\n", "bestEffort is ''; write Allowed or Refused"),
        ("a: {bestEffort: Allowed, bestEffort: Refused}\n", "line 1: queue a: 'bestEffort' appears twice"),
        ("a: {cpus: 1}\n", "resource 'cpus' is unknown; use cpu, memory"),
        ("a: {gpu: 1}\n", "resource 'gpu' is unknown"),
        ("A_B: {cpu: 1}\n", "'A_B' is not a valid queue name"),
        ("? [a]\n: {cpu: 1}\n", "a key must be a name"),
        ("a: {cpu: 1\n", "not YAML"),
        ("{" * 4000, "not YAML"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a: {cpu: 1}\n---\nb: {cpu: 1}\n", "not YAML"),
    ],
)
def test_an_invalid_queue_file_is_an_error_with_the_line_and_a_remedy(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert says in str(caught.value)
    assert "--queues" in str(caught.value)
    assert "queues.yaml" in str(caught.value)


def test_a_missing_queue_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--queues .*none\.yaml cannot be read: No such file"):
        read_queues(tmp_path / "none.yaml")


def test_a_queue_of_the_file_may_allow_trainers_without_requests(tmp_path: Path) -> None:
    text = "a: {cpu: 1, bestEffort: Allowed}\nb: {bestEffort: Refused}\nc: {bestEffort: Allowed}\n"
    assert read(tmp_path, text) == (
        Quota("a", (("cpu", 1000),), best_effort=True),
        Quota("b", ()),
        Quota("c", (), best_effort=True),
    )
