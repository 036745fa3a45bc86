"""The pods and the other objects of a job."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edl.api.manifest import (
    owner_reference,
    pod_group_manifest,
    role_selector,
    service_manifest,
    token_secret_manifest,
    volume_claim_manifest,
)
from edl.api.pods import MasterJournal, PodPlace, PodTerms, pod_manifest
from edl.api.priorities import PRIORITY_CLASSES
from edl.api.v1 import TrainingJob, parse_job
from edl.model.names import Role
from tests.worlds.golden_pods import inputs, output_of, render
from tests.worlds.hostile.jobs import CASES
from tests.worlds.hostile.manifests import Case, edited, make_manifest, template, trainer

UID = "0123abcd-4567-89ef-0123-456789abcdef"
Object = dict[str, Any]


def job_of(manifest: Object | None = None) -> TrainingJob:
    body = copy.deepcopy(manifest or make_manifest())
    body["metadata"]["uid"] = UID
    return parse_job(body)


def pod_of(manifest: Object | None = None, role: Role = Role.TRAINER, index: int = 0, **options: Any) -> Object:
    given = {"default_master_image": "edl", "priority_classes": PRIORITY_CLASSES, **options}
    return pod_manifest(job_of(manifest), role, index, **given)


def environment_of(pod: Object) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize("path", inputs(), ids=lambda path: path.name.partition(".")[0])
def test_pods_are_those_of_the_golden_files(path: Path) -> None:
    assert render(path) == output_of(path).read_text(), "if it is meant, run `python -m tests.worlds.golden_pods`"


@pytest.mark.parametrize("case", [case for case in CASES if case.accepted], ids=lambda case: case.name)
def test_every_valid_job_renders_pods_and_does_not_change(case: Case) -> None:
    job = job_of(case.job)
    before = job.model_dump()
    for role in Role:
        pod = pod_manifest(job, role, 0, default_master_image="edl", place=PodPlace("n"), priority_classes=())
        assert pod["spec"]["containers"][0]["name"] == role.value
    assert job.model_dump() == before


@pytest.mark.parametrize(
    ("role", "index", "expected"),
    [
        (Role.MASTER, 0, "edl-core"),
        (Role.PSERVER, 5, "edl-core"),
        (Role.TRAINER, 1, "edl-training"),
        (Role.TRAINER, 2, "edl-surplus"),
    ],
)
def test_the_index_decides_the_priority_class(role: Role, index: int, expected: str) -> None:
    assert pod_of(role=role, index=index)["spec"]["priorityClassName"] == expected


def test_a_missing_priority_class_is_left_out() -> None:
    assert "priorityClassName" not in pod_of(priority_classes=frozenset())["spec"]


def grace_s(role: Role, index: int, *, fault_tolerant: bool = True, **parts: Any) -> int:
    """The grace period of a pod of a job whose minimum is two trainers."""
    body = make_manifest()
    body["spec"]["fault_tolerant"] = fault_tolerant
    body["spec"]["trainer"] |= {"min-instance": 2, "max-instance": 4 if fault_tolerant else 2, **parts}
    pod = pod_manifest(parse_job(body), role, index, default_master_image="edl", priority_classes=PRIORITY_CLASSES)
    return int(pod["spec"]["terminationGracePeriodSeconds"])


def test_serving_does_not_wait_long_for_a_surplus_trainer_to_end() -> None:
    assert [grace_s(Role.TRAINER, index) for index in range(4)] == [30, 30, 10, 10]
    assert grace_s(Role.PSERVER, 2) == 30


def test_without_a_data_master_every_trainer_has_the_whole_grace_period() -> None:
    assert grace_s(Role.TRAINER, 2, fault_tolerant=False) == 30


def test_the_grace_period_of_the_template_wins() -> None:
    assert grace_s(Role.TRAINER, 3, template={"spec": {"terminationGracePeriodSeconds": 120}}) == 120


@pytest.mark.parametrize(
    ("fault_tolerant", "commands"),
    [
        (True, {Role.PSERVER: "start_new_pserver", Role.TRAINER: "start_new_trainer"}),
        (False, {Role.PSERVER: "start_pserver", Role.TRAINER: "start_trainer"}),
    ],
)
def test_the_mode_decides_the_command(*, fault_tolerant: bool, commands: dict[Role, str]) -> None:
    manifest = trainer(min_instance=6)
    manifest["spec"]["fault_tolerant"] = fault_tolerant
    for role, command in commands.items():
        assert pod_of(manifest, role)["spec"]["containers"][0]["command"] == ["paddle_k8s", command]


def test_a_command_in_the_template_wins() -> None:
    manifest = template(containers=[{"name": "trainer", "command": ["sh"], "args": ["-c", "true"]}])
    container = pod_of(manifest)["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["sh"], ["-c", "true"])


@pytest.mark.parametrize("role", Role)
def test_the_kubelet_keeps_the_end_of_the_log_of_a_failed_pod_unless_the_template_says_otherwise(role: Role) -> None:
    assert pod_of(role=role)["spec"]["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
    own = template(containers=[{"name": "trainer", "terminationMessagePolicy": "File"}])
    assert pod_of(own)["spec"]["containers"][0]["terminationMessagePolicy"] == "File"


def test_only_the_master_mounts_the_controller_token() -> None:
    for role, keys in (
        (Role.MASTER, ["trainer", "controller"]),
        (Role.PSERVER, ["trainer"]),
        (Role.TRAINER, ["trainer"]),
    ):
        volumes = {volume["name"]: volume for volume in pod_of(role=role)["spec"]["volumes"]}
        secret = volumes["edl-token"]["secret"]
        assert secret["secretName"] == "job-token-0123abcd"
        assert [item["key"] for item in secret["items"]] == keys


def test_gang_mode_has_no_master_url_and_no_token() -> None:
    manifest = trainer(min_instance=6)
    manifest["spec"]["fault_tolerant"] = False
    pod = pod_of(manifest)
    assert "volumes" not in pod["spec"]
    assert (environment_of(pod)["EDL_MASTER"], environment_of(pod)["EDL_TOKEN_FILE"]) == ("", "")


def test_a_pod_has_an_api_token_only_if_the_template_sets_an_account() -> None:
    assert pod_of()["spec"]["automountServiceAccountToken"] is False
    assert "automountServiceAccountToken" not in pod_of(template(serviceAccountName="me"))["spec"]


def test_the_planned_node_is_added_to_the_preferred_affinity_of_the_template() -> None:
    mine = {"weight": 1, "preference": {"matchExpressions": []}}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    pod = pod_of(template(affinity={"nodeAffinity": {name: [mine]}, "podAffinity": {}}), place=PodPlace("n7"))
    affinity = pod["spec"]["affinity"]
    assert affinity["podAffinity"] == {}
    assert [term["weight"] for term in affinity["nodeAffinity"][name]] == [1, 100]
    assert pod["metadata"]["annotations"].items() >= {"paddlepaddle.org/planned-node": "n7"}.items()


def test_a_pinned_pod_requires_its_node_in_addition_to_the_affinity_of_the_template() -> None:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    demand = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    alone = pod_of(place=PodPlace("n7", is_required=True))["spec"]["affinity"]
    assert alone == {"nodeAffinity": {name: {"nodeSelectorTerms": [{"matchFields": [demand]}]}}}
    overlay = template(affinity={"nodeAffinity": {name: {"nodeSelectorTerms": zones}}, "podAffinity": {}})
    both = pod_of(overlay, place=PodPlace("n7", is_required=True))["spec"]["affinity"]
    assert both["podAffinity"] == {}
    assert both["nodeAffinity"] == {
        name: {"nodeSelectorTerms": [{**zone, "matchFields": [demand]} for zone in zones]}
    }


def test_a_trainer_that_stays_with_others_requires_their_domain_in_each_alternative() -> None:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    alone = pod_of(place=PodPlace(labels=(("rack", "r1"),)))["spec"]["affinity"]
    assert alone == {"nodeAffinity": {name: {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}}
    overlay = template(affinity={"nodeAffinity": {name: {"nodeSelectorTerms": zones}}, "podAffinity": {}})
    both = pod_of(overlay, place=PodPlace("n7", is_required=True, labels=(("rack", "r1"),)))["spec"]["affinity"]
    node = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    assert both["podAffinity"] == {}
    assert both["nodeAffinity"][name]["nodeSelectorTerms"] == [
        {"matchExpressions": [*zone["matchExpressions"], rack], "matchFields": [node]} for zone in zones
    ]


def test_the_journal_is_on_a_volume_claim_if_the_job_or_the_cluster_provides_one() -> None:
    def journal(manifest: Object | None, **options: Any) -> Object:
        volumes = pod_of(manifest, Role.MASTER, **options)["spec"]["volumes"]
        return next(volume for volume in volumes if volume["name"] == "edl-journal")

    claimed = {"name": "edl-journal", "persistentVolumeClaim": {"claimName": "job-journal-0123abcd"}}
    assert journal(None) == {"name": "edl-journal", "emptyDir": {}}
    assert journal(None, journal=MasterJournal(has_claim=True)) == claimed
    assert journal(edited("master", storage={"size": "2Gi"})) == claimed


def test_trainers_that_train_in_step_get_the_batch_and_the_number_of_its_parts() -> None:
    manifest = trainer(min_instance=2, max_instance=6)
    assert "EDL_GLOBAL_BATCH" not in environment_of(pod_of(manifest))
    manifest["spec"]["elasticity"] = {"globalBatch": 256, "deterministic": True}
    environment = environment_of(pod_of(manifest))
    assert (environment["EDL_GLOBAL_BATCH"], environment["EDL_LOGICAL_RANKS"]) == ("256", "6")
    assert "EDL_GLOBAL_BATCH_MAX" not in environment
    manifest["spec"]["elasticity"] = {"globalBatch": 256, "maxGlobalBatch": 4096}
    environment = environment_of(pod_of(manifest))
    assert (environment["EDL_GLOBAL_BATCH"], environment["EDL_GLOBAL_BATCH_MAX"]) == ("256", "4096")


@pytest.mark.parametrize(
    ("requests", "count", "gpu"),
    [
        ({"cpu": "200m"}, "1", "0"),
        ({"cpu": "2900m"}, "2", "0"),
        ({"cpu": "8", "nvidia.com/gpu": 4}, "4", "1"),
        ({"memory": "1Gi"}, "1", "0"),
    ],
)
def test_counts_the_devices_of_a_trainer(requests: Object, count: str, gpu: str) -> None:
    environment = environment_of(pod_of(trainer(resources={"requests": requests})))
    assert (environment["PADDLE_INIT_TRAINER_COUNT"], environment["PADDLE_INIT_USE_GPU"]) == (count, gpu)


def test_host_network_pods_have_host_ports() -> None:
    spec = pod_of(edited(hostNetwork=True))["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert [port["hostPort"] for port in spec["containers"][0]["ports"]] == [7164, 7165]


def test_host_names_fit_the_longest_job_and_index() -> None:
    manifest = make_manifest("a" * 50)
    for role in Role:
        assert len(pod_of(manifest, role, 9999 if role is not Role.MASTER else 0)["spec"]["hostname"]) <= 63


def test_the_service_names_every_pod_ready_or_not() -> None:
    service = service_manifest(job_of())
    assert service["metadata"]["name"] == "job"
    assert service["metadata"]["ownerReferences"] == [owner_reference(job_of())]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= pod_of()["metadata"]["labels"].items()
    assert [port["port"] for port in service["spec"]["ports"]] == [7164, 8080]


def test_a_port_of_the_master_is_named_once() -> None:
    assert len(service_manifest(job_of(edited(port=8080)))["spec"]["ports"]) == 1


def test_the_secret_holds_both_tokens_and_belongs_to_the_job() -> None:
    secret = token_secret_manifest(job_of(), "aa", "bb")
    assert secret["metadata"]["name"] == "job-token-0123abcd"
    assert secret["stringData"] == {"trainer": "aa", "controller": "bb"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == UID


def test_the_claim_is_as_the_job_says() -> None:
    claim = volume_claim_manifest(job_of(edited("master", storage={"size": "2Gi", "storageClassName": "fast"})))
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert volume_claim_manifest(job_of())["spec"]["resources"]["requests"]["storage"] == "1Gi"


def test_a_pod_group_holds_the_minimum_set() -> None:
    manifest = edited(schedulerName="volcano", queue="ads")
    group = pod_group_manifest(job_of(manifest), {"cpu": "5"}, "edl-training")
    least = {"minMember": 1 + 2 + 2, "minResources": {"cpu": "5"}}
    assert group["spec"] == {**least, "queue": "ads", "priorityClassName": "edl-training"}
    assert "priorityClassName" not in pod_group_manifest(job_of(manifest), {}, "")["spec"]
    pod = pod_of(manifest)
    assert pod["metadata"]["annotations"].items() >= {"scheduling.k8s.io/group-name": "job"}.items()
    assert pod["spec"]["schedulerName"] == "volcano"


def test_the_selector_finds_the_pods_of_its_role() -> None:
    job = job_of()
    for role in Role:
        wanted = dict(part.split("=") for part in role_selector(job, role).split(","))
        found = [other for other in Role if wanted.items() <= pod_of(role=other)["metadata"]["labels"].items()]
        assert found == [role]


def test_excluded_nodes_are_one_requirement_each_in_every_term() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    own = template(affinity={"nodeAffinity": required})
    names = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("n1", "n2")]
    for manifest, terms in ((None, [{}]), (own, zones)):
        affinity = pod_of(manifest, place=PodPlace("n3", avoided=("n1", "n2")))["spec"]["affinity"]["nodeAffinity"]
        assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
            {**term, "matchFields": names} for term in terms
        ]
        assert affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["weight"] == 100
    assert "affinity" not in pod_of()["spec"]


def digest_of(**changes: Any) -> str:
    manifest = pod_manifest(
        job_of(edited()), Role.TRAINER, 0, **({"default_master_image": "", "priority_classes": ()} | changes)
    )
    return str(manifest["metadata"]["annotations"]["paddlepaddle.org/requests"])


def test_what_edl_asks_for_is_on_the_pod_whatever_becomes_of_it() -> None:
    assert digest_of() == digest_of(place=PodPlace("n7", True, (), ("n8",)), terms=PodTerms(0.1))
    with_memory = edited()
    with_memory["spec"]["trainer"]["resources"] = {"requests": {"cpu": "1", "memory": "3Gi"}}
    other = pod_manifest(job_of(with_memory), Role.TRAINER, 0, default_master_image="", priority_classes=())
    assert other["metadata"]["annotations"]["paddlepaddle.org/requests"] != digest_of()
