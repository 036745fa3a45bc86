"""The report of `edl shadow` as JSON: its fields, their meaning and their version.

The description of each field is what docs/reference/json.md says about it. A field that is removed, or that changes
its meaning, changes `VERSION`; a new field does not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

VERSION: Literal["edl.shadow/v1"] = "edl.shadow/v1"


class Predicate(StrEnum):
    """Why a node cannot take a pod; the names of the rows of the report."""

    RESOURCES = "resources"
    TAINTS = "taints"
    SELECTOR = "selector"
    PORTS = "ports"
    BETWEEN_PODS = "rules between pods"
    VOLUMES = "volumes"
    CLAIMS = "claims"
    OTHER = "other"


JUDGED: tuple[Predicate, ...] = tuple(predicate for predicate in Predicate if predicate is not Predicate.OTHER)
"""The predicates that edl judges itself."""


class Part(BaseModel):
    """A part of the report; its fields have camel case in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class PredicateRow(Part):
    """The counts for one predicate."""

    predicate: Annotated[Predicate, Field(description="`resources`, `taints`, `selector` and so on")]
    judged: Annotated[bool, Field(description="true if edl judges it itself")]
    bound_agreed: Annotated[int, Field(description="bound pods whose node passes the predicate in edl's view")] = 0
    bound_disagreed: Annotated[int, Field(description="bound pods whose node fails the predicate in edl's view")] = 0
    refused_agreed: Annotated[
        int,
        Field(description="refusals that name the predicate, where edl finds no node either; one may name several"),
    ] = 0
    refused_disagreed: Annotated[
        int, Field(description="refusals that name the predicate, where edl finds a node")
    ] = 0


class Disagreement(Part):
    """One answer of kube-scheduler that edl would have given otherwise."""

    at: Annotated[str, Field(description="time of the answer")]
    pod: Annotated[str, Field(description="NAMESPACE/NAME")]
    node: Annotated[str, Field(description="the node of the pod; for a refused pod the one that edl calls free")]
    scheduler: Annotated[str, Field(description="what kube-scheduler said")]
    edl: Annotated[str, Field(description="what edl would have said")]
    predicates: Annotated[list[Predicate], Field(description="what the two disagree about")]
    since_change_s: Annotated[
        float, Field(description="seconds since a pod or node last freed capacity; a short time suggests a race")
    ]


class Agreement(Part):
    """How often edl and kube-scheduler agree."""

    bound: Annotated[int, Field(description="pods that kube-scheduler bound")] = 0
    bound_agreed: Annotated[int, Field(description="bound pods whose node edl would have allowed")] = 0
    refused: Annotated[int, Field(description="refusals; one for each message that is new for its pod")] = 0
    refused_agreed: Annotated[int, Field(description="refusals where edl finds no node either")] = 0
    in_flight: Annotated[
        int,
        Field(description="answers that edl agreed with 2 s later, once bindings and deletions had arrived; agreed"),
    ] = 0
    share: Annotated[float | None, Field(description="agreed answers as a part of all; null without any")] = None
    predicates: Annotated[list[PredicateRow], Field(description="by predicate")] = []
    disagreements: Annotated[list[Disagreement], Field(description="the first 500")] = []
    left_off: Annotated[int, Field(description="disagreements beyond the first 500")] = 0
    daemon_pods: Annotated[int, Field(description="answers about pods of DaemonSets, which are not compared")] = 0
    no_time: Annotated[
        int,
        Field(description="answers about pods with rules, which are not compared: it would have taken too long"),
    ] = 0
    other_schedulers: Annotated[int, Field(description="answers of other schedulers, which are not compared")] = 0


class Eviction(Part):
    """A trainer that edl would have evicted."""

    first: Annotated[str, Field(description="time of the first plan with this eviction")]
    last: Annotated[str, Field(description="time of the last plan with this eviction")]
    plans: Annotated[int, Field(description="how many plans had this eviction")]
    job: Annotated[str, Field(description="NAMESPACE/NAME of the job")]
    trainer: Annotated[str, Field(description="name of the pod")]
    uid: Annotated[str, Field(description="its UID")]
    node: Annotated[str, Field(description="its node; empty if it had none")]
    reason: Annotated[str, Field(description="`ServingNeedsRoom`, or the reason of the decision")]
    serving: Annotated[list[str], Field(description="the serving pods that would have got its capacity")]


class ServedPod(Part):
    """A serving pod for which edl would have evicted trainers."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME")]
    uid: Annotated[str, Field(description="its UID")]
    node: Annotated[str, Field(description="the node on which it fits once the trainers are gone; empty if on none")]
    fits: Annotated[bool, Field(description="true if it fits there by the model")]
    wanted: Annotated[str, Field(description="time of the first plan with evictions for it")]
    trainers: Annotated[list[str], Field(description="the trainers that free capacity for it, as NAMESPACE/NAME")]
    outcome: Annotated[
        Literal["waits", "bound", "gone"],
        Field(description="what became of it without edl: `bound` by kube-scheduler, `gone`, or it still `waits`"),
    ] = "waits"
    waited_s: Annotated[float | None, Field(description="seconds from `wanted` to that; null while it waits")] = None


class Evictions(Part):
    """What edl would have evicted."""

    trainers: Annotated[int, Field(description="trainers that a plan wanted evicted")] = 0
    for_serving: Annotated[int, Field(description="trainers that a plan wanted evicted for serving pods")] = 0
    serving_pods: Annotated[int, Field(description="serving pods for which trainers would have been evicted")] = 0
    fits: Annotated[int, Field(description="serving pods that would fit then, by the model")] = 0
    bound_anyway: Annotated[
        int, Field(description="serving pods that kube-scheduler bound although nothing was evicted")
    ] = 0
    evictions: Annotated[list[Eviction], Field(description="the first 2,000")] = []
    served: Annotated[list[ServedPod], Field(description="the serving pods, the first 2,000")] = []
    left_off: Annotated[int, Field(description="evictions and serving pods beyond the first 2,000")] = 0


class Interval(Part):
    """One minute of the cluster; amounts are means over the observed part of it."""

    start: Annotated[str, Field(description="when it began")]
    seconds: Annotated[float, Field(description="how many seconds of the minute were observed")]
    capacity: Annotated[dict[str, float], Field(description="by resource: allocatable of ready nodes")]
    used: Annotated[dict[str, float], Field(description="by resource: requests of bound pods")]
    training: Annotated[dict[str, float], Field(description="by resource: those of trainers among them")]
    with_edl: Annotated[
        dict[str, float], Field(description="by resource: requests of bound pods if the plan of the moment held")
    ]
    training_with_edl: Annotated[dict[str, float], Field(description="by resource: those of trainers among them")]
    waiting: Annotated[float, Field(description="serving pods without a node")]
    waiting_with_edl: Annotated[float, Field(description="serving pods that the plan of the moment places nowhere")]
    jobs_waiting: Annotated[float, Field(description="jobs with fewer trainers than their minimum")]
    jobs_waiting_with_edl: Annotated[float, Field(description="jobs that the plan of the moment does not admit")]


class Estimate(Part):
    """A mean and its uncertainty."""

    mean: Annotated[float, Field(description="mean over the intervals")]
    low: Annotated[
        float | None, Field(description="5th percentile of the bootstrap; null with fewer than 5 intervals")
    ]
    high: Annotated[float | None, Field(description="95th percentile of the bootstrap")]


class ResourceGain(Part):
    """The expected gain in one resource."""

    resource: Annotated[str, Field(description="`cpu`, `memory` or a device")]
    capacity: Annotated[float, Field(description="mean of what ready nodes have: millicores, bytes, devices")]
    used: Annotated[float, Field(description="mean part of it that bound pods request")]
    with_edl: Annotated[float, Field(description="the same if each plan held")]
    training: Annotated[float, Field(description="mean part of it that bound trainers request")]
    training_with_edl: Annotated[float, Field(description="the same if each plan held")]
    gain: Annotated[Estimate, Field(description="the difference, as a part of the capacity")]


class Gain(Part):
    """The use of resources that edl expects to add."""

    method: Annotated[str, Field(description="how it is computed, and what it leaves out")]
    intervals: Annotated[int, Field(description="how many intervals there are")] = 0
    block: Annotated[int, Field(description="how many intervals in a row the bootstrap draws together")] = 0
    resources: Annotated[list[ResourceGain], Field(description="by resource")] = []
    serving_waiting: Annotated[Estimate | None, Field(description="serving pods that wait, fewer with edl")] = None
    jobs_waiting: Annotated[Estimate | None, Field(description="jobs that wait, fewer with edl")] = None


class Unknown(Part):
    """Objects that edl could not read or was not allowed to read."""

    kinds: Annotated[dict[str, int], Field(description="pods by kind of owner that edl does not know")] = {}
    refused_workloads: Annotated[
        dict[str, str], Field(description="workloads that edl would leave alone, and why")
    ] = {}
    rules: Annotated[
        dict[str, int], Field(description="the most pods at a time whose devices edl does not count, by the reason")
    ] = {}
    admission: Annotated[list[str], Field(description="webhooks and policies that see pods or workloads")] = []
    schedulers: Annotated[dict[str, int], Field(description="pods by scheduler other than kube-scheduler")] = {}
    unreadable: Annotated[
        dict[str, str], Field(description="collections that could not be read: not there, or no right")
    ] = {}
    set_aside: Annotated[list[str], Field(description="objects that edl skipped, and why")] = []
    problems: Annotated[list[str], Field(description="reasons for which no plan could be made, the last 20")] = []


class Costs(Part):
    """What the controller would have cost; the process that watched made the same decisions."""

    cpu_s: Annotated[float, Field(description="CPU seconds of the process, start included")] = 0.0
    cpu_share: Annotated[float, Field(description="the same for each second observed, in cores")] = 0.0
    rss_bytes: Annotated[int, Field(description="largest resident memory that was seen")] = 0
    decisions: Annotated[int, Field(description="decisions made")] = 0
    failed: Annotated[int, Field(description="decisions that failed")] = 0
    median_s: Annotated[float | None, Field(description="median length of a decision")] = None
    p99_s: Annotated[float | None, Field(description="99th percentile of it")] = None
    worst_s: Annotated[float | None, Field(description="the longest")] = None
    writes: Annotated[int, Field(description="writes that the decisions would have brought, an estimate")] = 0
    writes_per_minute: Annotated[float, Field(description="the same for each minute observed")] = 0.0


class Settings(Part):
    """How the watcher was told to decide."""

    policy: Annotated[str, Field(description="name of the policy")]
    as_if_elastic: Annotated[bool, Field(description="true if workloads that ask for nothing count as elastic")]
    as_if_min: Annotated[str, Field(description="`half` or `one`: the minimum of such a workload")]
    as_if_max: Annotated[str, Field(description="`twice` or `same`: its maximum")]


class Report(Part):
    """The whole report."""

    api_version: Annotated[Literal["edl.shadow/v1"], Field(description="the version of these fields")] = VERSION
    edl: Annotated[str, Field(description="version of edl")]
    server: Annotated[str, Field(description="address of the API server")]
    settings: Settings
    started: Annotated[str, Field(description="when the first run began")]
    ended: Annotated[str, Field(description="until when this report goes")]
    observed_s: Annotated[float, Field(description="seconds observed, all runs together")]
    is_final: Annotated[bool, Field(description="false for an intermediate report")]
    agreement: Agreement
    evictions: Evictions
    gain: Gain
    unknown: Unknown
    costs: Costs
    intervals: Annotated[list[Interval], Field(description="one for each minute with an observation")] = []
