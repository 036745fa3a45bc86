"""The format of a scenario file: nodes, jobs with their arrivals and work, serving over time, latencies.

Field names carry their units; amounts are Kubernetes quantities. `scenario_file.py` reads a file and names the line
of each error. The JSON schema in docs/reference/scenario.schema.json is generated from these classes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from edl.errors import ConfigError
from edl.model.headroom import SERVING_SLO
from edl.model.lending import Lending
from edl.model.quantity import MAX_AMOUNT, parse_quantity
from edl.model.sizes import MOST_SIZES

Seconds = Annotated[float, Field(ge=0, le=1e8, allow_inf_nan=False)]


def _ascending(span: tuple[float, float]) -> tuple[float, float]:
    if span[0] > span[1]:
        shortest, longest = f"{span[0]:.15g}", f"{span[1]:.15g}"
        raise PydanticCustomError(
            "not_ascending",
            "the shortest time {low} exceeds the longest one {high}; write [shortest, longest]",
            {"low": shortest, "high": longest},
        )
    return span


Between = Annotated[
    tuple[Seconds, Seconds],
    AfterValidator(_ascending),
    Field(description="Shortest and longest time; uniform between them."),
]
Window = Annotated[tuple[Seconds, Seconds], Field(description="From and until, in seconds of the scenario.")]
Count = Annotated[int, Field(ge=0, le=100_000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$")]


NOT_A_QUANTITY = "not_a_quantity"
"""The type of the error of a bad amount; only who knows the field around it can name the resource."""

TWICE = "name_twice"
"""The type of the error of a name that two entries have; its context says where the second one is."""

_HEADROOM = "give a count of pods from 0 to 100000, or one of auto, peak, conformal, foresight"


def _quantity(value: str | float) -> str | float:
    try:
        check_amount(value, "amount")
    except ConfigError as error:
        raise PydanticCustomError(NOT_A_QUANTITY, "{message}", {"message": str(error)}) from error
    return value


def check_amount(value: str | float, resource: str) -> None:
    """Reject a value that is no quantity, or a whole number that no resource can have.

    Raises:
        ConfigError: the value cannot be used.
    """
    parse_quantity(value, resource)
    if isinstance(value, int) and value > MAX_AMOUNT:
        raise ConfigError(f"{resource} {str(value)[:20]!r}... is more than any node has; give at most {MAX_AMOUNT}")


def _headroom(value: object, check: ValidatorFunctionWrapHandler) -> int | str:
    """Report one error for a wrong value, instead of one for each type that the field may have."""
    try:
        checked: int | str = check(value)
        return checked
    except ValidationError as error:
        raise PydanticCustomError("headroom", _HEADROOM) from error


Quantity = Annotated[str | float, BeforeValidator(_quantity)]
Amounts = Annotated[dict[str, Quantity], Field(description="Amount of each resource, as in a pod: cpu, memory, ...")]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NodeGroup(_Spec):
    """Equal nodes, named `<name>-<number>`, from 0."""

    name: Name
    count: Annotated[int, Field(ge=1, le=20_000)] = 1
    resources: Annotated[Amounts, Field(min_length=1)]
    system_cpu: Annotated[Quantity, Field(description="Cores of each node that its own daemons use.")] = 0
    labels: dict[str, str] = Field(default_factory=dict)


class NodeEvent(_Spec):
    """A node that leaves with its pods, or joins (again)."""

    at_s: Seconds
    node: Annotated[
        str,
        Field(description="`<group>-<number>`, from 0: a group gpu with count 4 has the nodes gpu-0 to gpu-3."),
    ]
    event: Literal["lost", "back"]


class SchedulerSpec(_Spec):
    """How kube-scheduler behaves: how long it takes for a pod, when it tries again, whether it preempts."""

    pod_s: Annotated[float, Field(gt=0, le=60)] = 0.005
    preempt_s: Annotated[
        float,
        Field(
            gt=0, le=60, description="Seconds for a try that changes the status of the pod: another node or reason."
        ),
    ] = 0.03
    retry: Annotated[
        Literal["events", "backoff"],
        Field(description="Try a pod again once it fits (today), or only after growing pauses (Kubernetes 1.6)."),
    ] = "events"
    backoff_max_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    preempts: bool = True


class LatencySpec(_Spec):
    """How long pods take to start and to end, by role: trainer, pserver, master, serving."""

    start_s: dict[Literal["trainer", "pserver", "master", "serving"], Between] = Field(default_factory=dict)
    stop_s: dict[Literal["trainer", "pserver", "master", "serving"], Between] = Field(default_factory=dict)
    write_s: Annotated[
        Seconds, Field(description="Seconds for a write of the controller, if the API server does nothing else.")
    ] = 0.01
    writes_per_s: Annotated[
        float | None,
        Field(gt=0, description="The most writes of the controller that the API server carries out per second."),
    ] = None
    decide_s: Annotated[Between, Field(description="Seconds in which the controller makes a plan.")] = (0.0, 0.0)
    resize_s: Annotated[
        Seconds, Field(description="Seconds until a kubelet grants a changed request of a running pod.")
    ] = 0.2
    create_per_s: Annotated[float, Field(gt=0, description="Pods that a Deployment creates per second.")] = 100.0

    def start_of(self, role: str) -> tuple[float, float]:
        """Seconds from a pod's binding until it is ready."""
        return next((span for key, span in self.start_s.items() if key == role), (1.0, 2.0))

    def stop_of(self, role: str) -> tuple[float, float]:
        """Seconds from a pod's deletion until its node is free."""
        return next((span for key, span in self.stop_s.items() if key == role), (1.0, 2.0))


class ControllerSpec(_Spec):
    """The flags of the controller that runs in the simulation."""

    interval_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    max_load_desired: Annotated[float, Field(gt=0, le=1)] = 1.0
    serving_headroom: Annotated[
        Count | Literal["auto", "peak", "conformal", "foresight"],
        Field(
            description="Pods of each shape, or how the number is found: learned, the peak of the last hour,"
            " conformal with feedback, or from the serving to come."
        ),
        WrapValidator(_headroom),
    ] = 0
    serving_slo: Annotated[
        float, Field(gt=0, le=1e6, description="Idle core-seconds that one waiting pod-second costs.")
    ] = SERVING_SLO
    surplus_cpu_request: Annotated[
        float, Field(gt=0, le=1, description="The part of their CPU that trainers above the minimum request.")
    ] = 1.0
    lend_by_resize: Annotated[
        bool,
        Field(
            description="Trainers request all until they run and lend by a resize in place; else they lend at once."
        ),
    ] = False
    clear_lending_after_s: Annotated[
        Seconds,
        Field(description="How long trainers may be slowed before they are deleted; 0 never deletes them for that."),
    ] = 30.0
    deadline_s: Annotated[float, Field(gt=0, le=600)] = 60.0


class Series(_Spec):
    """Moments in time: a list, or a first moment and the pause between two."""

    times_s: tuple[Seconds, ...] = ()
    first_s: Seconds = 0.0
    every_s: Seconds = 0.0
    jitter_s: Annotated[
        Seconds, Field(description="Each moment is shifted by a random time of at most so many seconds.")
    ] = 0.0

    def moments(self, count: int) -> tuple[float, ...]:
        """The first `count` moments, without jitter."""
        return self.times_s[:count] if self.times_s else tuple(self.first_s + i * self.every_s for i in range(count))


class FixedSpec(_Spec):
    """The number and requests of the masters or pservers of a job."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    resources: Annotated[Amounts, Field(min_length=1)]


class ResizeSpec(_Spec):
    """The cost of a change of the number of trainers."""

    cost_s: Seconds = 0.0
    stops: Annotated[
        Literal["job", "trainer"],
        Field(description="Whether the whole job stops for that time, or only the new trainers join late."),
    ] = "trainer"


Speeds = Annotated[
    tuple[tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]], ...],
    Field(description="(trainers, samples per second)."),
]


class BatchSpec(_Spec):
    """The global batches that a job may choose from; it chooses the one with the most goodput for its trainers.

    A sample of a batch teaches (noise + base) / (noise + batch) of what one of the base batch does.
    """

    base: Annotated[int, Field(ge=1, description="Batch of which `work` counts the samples; the smallest one.")]
    speeds: Annotated[
        tuple[tuple[Annotated[int, Field(ge=1)], Annotated[Speeds, Field(min_length=1)]], ...],
        Field(min_length=1, description="Each batch, ascending, with its speeds."),
    ]
    noise: Annotated[
        tuple[tuple[Annotated[float, Field(ge=0, lt=1)], tuple[Annotated[float, Field(ge=0)], ...]], ...],
        Field(min_length=1, description="From which part of the work on, and the noise scale with each batch."),
    ]

    @model_validator(mode="after")
    def _is_in_order(self) -> BatchSpec:
        batches, parts = [batch for batch, _ in self.speeds], [part for part, _ in self.noise]
        if batches != sorted(set(batches)) or batches[0] != self.base:
            raise ValueError(f"the batches of speeds do not ascend from base {self.base}; sort them")
        if parts[0] != 0.0 or parts != sorted(set(parts)):
            raise ValueError("the parts of the work in noise must begin with 0 and ascend; sort them")
        short = [part for part, scales in self.noise if len(scales) != len(batches)]
        if short:
            raise ValueError(f"noise from {short[0]:g} on does not list {len(batches)} scales, one for each batch")
        return self


class JobGroup(_Spec):
    """Jobs from one template, named `<name>-<number>`."""

    name: Name
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    arrival: Series = Series()
    removal: Annotated[Series | None, Field(description="When each job is deleted; without it, never.")] = None
    min: Annotated[int, Field(ge=1, le=10_000)] = 1
    max: Annotated[int, Field(ge=1, le=10_000)]
    sizes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000)], ...],
        Field(
            max_length=MOST_SIZES,
            description="The only numbers of trainers, from min to max; without them, every one.",
        ),
    ] = ()
    start: Annotated[Count, Field(description="Trainers that policy edl-2017 starts with; 0 is min.")] = 0
    fixed: Annotated[Count, Field(description="Trainers under policies of fixed size; 0 is max.")] = 0
    trainer: Annotated[Amounts, Field(min_length=1)]
    pserver: FixedSpec | None = None
    master: FixedSpec | None = None
    work: Annotated[
        float | None, Field(gt=0, description="Samples until the job ends; without it, it never does.")
    ] = None
    throughput: Annotated[
        Speeds, Field(description="(trainers, samples per second); without it, speed grows as n^0.75 from 1.")
    ] = ()
    batch: Annotated[
        BatchSpec | None, Field(description="The job may change its batch; this takes the place of throughput.")
    ] = None
    misjudged: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="The largest relative error of the speeds that policies know, drawn by group and count.",
        ),
    ] = 0.0
    is_declared: Annotated[bool, Field(description="Whether the policies know the throughput.")] = True
    resize: ResizeSpec = ResizeSpec()
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    cooldown_s: Seconds = 60.0
    lending: Annotated[Lending, Field(description="Which trainers may lend CPU.")] = Lending.SURPLUS

    @model_validator(mode="after")
    def _is_in_order(self) -> JobGroup:
        if self.min > self.max:
            raise ValueError(f"min {self.min} exceeds max {self.max}; lower min")
        if self.sizes and (min(self.sizes), max(self.sizes)) != (self.min, self.max):
            found = f"sizes go from {min(self.sizes)} to {max(self.sizes)}"
            raise ValueError(f"{found}, but min is {self.min} and max is {self.max}; let them be equal")
        if self.batch is not None and (self.throughput or self.work is None):
            raise ValueError("batch says how fast the job is and needs work; remove throughput, and set work")
        for name, series in (("arrival", self.arrival), ("removal", self.removal)):
            if series is not None and series.times_s and len(series.times_s) < self.count:
                raise ValueError(f"{name} lists {len(series.times_s)} times for {self.count} jobs; list one for each")
        return self


class DeploymentSpec(_Spec):
    """A Deployment of serving pods, with its number of replicas over time."""

    name: Name
    resources: Annotated[Amounts, Field(min_length=1)]
    replicas: Annotated[
        tuple[tuple[Seconds, Count], ...], Field(min_length=1, description="(second, replicas from then on).")
    ]

    @model_validator(mode="after")
    def _is_in_order(self) -> DeploymentSpec:
        times = [at for at, _ in self.replicas]
        if times != sorted(times):
            raise ValueError("the times of replicas do not ascend; sort them")
        return self


class MeasureSpec(_Spec):
    """The part of the simulated time that the averages cover."""

    from_s: Seconds = 0.0
    until_s: Seconds | None = None
    steady_s: Annotated[
        Window | None, Field(description="The time over which steady_utilisation and steady_trainers are averaged.")
    ] = None
    ramps_s: Annotated[
        Window | None, Field(description="The time over which the shortfall of serving is counted.")
    ] = None


class Scenario(_Spec):
    """The content of a scenario file."""

    name: Name
    description: str = ""
    duration_s: Annotated[float, Field(gt=0, le=1e8)]
    settled: Annotated[
        bool, Field(description="Whether the serving pods of second 0 run before the first job arrives.")
    ] = True
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    node_events: tuple[NodeEvent, ...] = ()
    jobs: tuple[JobGroup, ...] = ()
    serving: tuple[DeploymentSpec, ...] = ()
    scheduler: SchedulerSpec = SchedulerSpec()
    controller: ControllerSpec = ControllerSpec()
    latency: LatencySpec = LatencySpec()
    measure: MeasureSpec = MeasureSpec()
    policies: Annotated[tuple[str, ...], Field(description="Policies that run without --policy.")] = ("maxmin",)
    seeds: Annotated[int, Field(ge=1, le=1000)] = 1

    @model_validator(mode="after")
    def _names_are_unique(self) -> Scenario:
        for field, what, names in (
            ("nodes", "node group", [g.name for g in self.nodes]),
            ("jobs", "job group", [g.name for g in self.jobs]),
            ("serving", "deployment", [d.name for d in self.serving]),
        ):
            for index, name in enumerate(names):
                if name in names[:index]:
                    where = {"what": what, "name": name, "field": field, "index": index}
                    raise PydanticCustomError(TWICE, "two entries are called {what} {name}; rename one", where)
        return self
