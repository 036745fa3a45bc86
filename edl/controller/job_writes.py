"""The writes that one job needs now, computed anew each time from the job, its allotment and the facts around it.

The life cycle says which actions a job needs. Here they become writes: what must come first is sent alone, and the
rest is computed again once that has ended. So no order has to be remembered.

- While a mark, a status or anything else but pods is under way for a job, nothing is computed for it.
- What pods need exists before the pods, masters and pservers before trainers.
- A job that ends pods creates none until the deletions are sent: one of them may fail.
- A status waits for the marks that it counts. It says what the cache shows, not what is under way.
- An event is sent with the write that it explains, and only if that succeeded: it is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edl.clock import Clock
from edl.controller.allotment import Slot, Usable
from edl.controller.assumed import UID_OF_ASSUMED
from edl.controller.backoff import Backoff
from edl.controller.due_jobs import spread
from edl.controller.pending_writes import Lane, Write
from edl.controller.ports import Recorder
from edl.lifecycle.action_order import degraded_update, status_updates
from edl.lifecycle.broken_nodes import keep_away
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext, desired_state
from edl.lifecycle.domains import require_domains
from edl.lifecycle.lending import lend, nodes_without_lending
from edl.lifecycle.node_pinning import note_unpinned, pin
from edl.lifecycle.node_requests import allow_eviction, node_request_actions
from edl.lifecycle.node_watch import UNWATCHED, NodeWatch
from edl.lifecycle.pod_actions import needs
from edl.lifecycle.resized_workload import workload_actions
from edl.lifecycle.tenancy import limited_priority
from edl.lifecycle.trials.rejecting_nodes import away_when_created
from edl.model.actions import (
    Action,
    ChangeWorkloads,
    CreatePod,
    DeletePod,
    EmitEvent,
    EventKind,
    Intent,
    MarkPod,
    Need,
    PatchStatus,
    Report,
    ResizePod,
    ResizeWorkload,
    WorkloadAction,
)
from edl.model.cluster import ClusterSnapshot, Node, NodeRequest
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS, JobKey, Role, WorkloadKind
from edl.model.status import Reason
from edl.model.topology import Labels

REPAIR_S = 1800.0
"""How often edl makes sure that what a running job needs still exists."""
ENSURED_FOR_S = 300.0
"""How long edl relies on the existence of an object that it has made for pods, without checking again."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the cluster from which the pending actions of every job are computed.

    Attributes:
        nodes: the nodes of the cluster.
        unreachable: UIDs of pods whose end no kubelet will confirm.
        watch: what is known about nodes on which trainers failed or hung.
        missing_priority_classes: the PriorityClasses of edl that the cluster lacks.
        node_requests: for each job, its request pods that exist.
        serving_waits: a serving pod waits for capacity.
        in_the_way: UIDs of kept pods that are to be deleted; see `edl.planner.queues.kept_pods`.
    """

    nodes: Sequence[Node] = ()
    unreachable: frozenset[str] = frozenset()
    watch: NodeWatch = UNWATCHED
    missing_priority_classes: tuple[str, ...] = ()
    node_requests: Mapping[JobKey, Sequence[NodeRequest]] = field(default_factory=dict)
    serving_waits: bool = False
    in_the_way: frozenset[str] = frozenset()

    @property
    def labels(self) -> dict[str, Labels]:
        """The labels of each node."""
        return {node.name: node.labels for node in self.nodes}


def node_requests_by_job(snapshot: ClusterSnapshot) -> dict[JobKey, list[NodeRequest]]:
    """The request pods of each job that has any."""
    found: dict[JobKey, list[NodeRequest]] = {}
    for request in snapshot.node_requests:
        found.setdefault(request.job, []).append(request)
    return found


class JobWrites:
    """Computes the writes of jobs.

    What it remembers from one call to the next costs time if it is lost, and never correctness.

    Args:
        clock: for ages and pauses.
        recorder: is told of jobs that break this code.
        backoff: which actions must wait after the API server rejected them.
        limits: what the operator allows.
        master_view: what is known about the master of a job.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        backoff: Backoff,
        limits: Limits,
        master_view: Callable[[Job], MasterView | None],
    ) -> None:
        self._clock, self._recorder, self._backoff = clock, recorder, backoff
        self._limits, self._master_view = limits, master_view
        self._closed: tuple[Sequence[Node], frozenset[str]] = ((), frozenset())
        self._unpinned: dict[tuple[str, str], float] = {}
        self._ensured: dict[str, tuple[int, float]] = {}  # by UID: (generation, until when it is taken for usable)
        self._repaired: dict[str, tuple[int, float]] = {}  # by UID: (generation, when the next repair is due)
        self._noticed: dict[str, str] = {}  # by UID: the last event of a workload that is no TrainingJob

    def use(self, limits: Limits) -> None:
        """Use these limits from now on."""
        self._limits = limits

    def forget(self, job_uid: str) -> None:
        """Forget a job that no longer exists."""
        for known in (self._ensured, self._repaired, self._noticed):
            known.pop(job_uid, None)

    def sent(self, action: Action, *, generation: int) -> None:
        """Note an action that succeeded.

        Args:
            action: the action.
            generation: the generation of the job for which it was computed.
        """
        if isinstance(action, EmitEvent) and action.job.kind is not WorkloadKind.TRAINING_JOB:
            self._noticed[action.job_uid] = action.message
        elif isinstance(action, Need):
            self._ensured[action.job_uid] = (generation, self._clock.monotonic_s() + ENSURED_FOR_S)

    def of(
        self, shown: Job, assumed: Job, usable: Usable, facts: Facts, under_way: Collection[CreatePod | DeletePod]
    ) -> list[Write]:
        """The writes of a job, in any order: their lanes say what comes first.

        Args:
            shown: the job as the cache shows it.
            assumed: the job as it will be once the writes under way have succeeded.
            usable: what it may do.
            facts: what it depends on.
            under_way: its creations and deletions that have not ended.
        """
        try:
            if shown.owner_count is not None:
                return self._of_workload(shown, usable)
            return list(self._of_job(shown, assumed, usable, facts, under_way))
        except Exception as error:  # a job that breaks this code must not stop the other jobs
            self._recorder.failed(f"job {shown.key}", error)
            return []

    def _of_job(
        self, shown: Job, assumed: Job, usable: Usable, facts: Facts, under_way: Collection[CreatePod | DeletePod]
    ) -> Iterator[Write]:
        now_s, time_s = self._clock.monotonic_s(), self._clock.now_s()
        self._unpinned = note_unpinned(self._unpinned, shown, time_s, now_s)
        self._backoff.retries.note(shown, now_s, time_s)
        context = self._context(shown, facts, now_s, time_s)
        actions = self._actions(assumed, usable, usable.slots, context, time_s)
        going = {a.pod_uid for a in under_way if isinstance(a, DeletePod)}
        marks = [a for a in actions if isinstance(a, MarkPod) and _is_real(a.pod_uid) and a.pod_uid not in going]
        ends = [a for a in actions if isinstance(a, DeletePod) and _is_real(a.pod_uid) and a.pod_uid not in going]
        self._backoff.retries.expect_end(shown.uid, [a.pod_uid for a in ends])
        moved = [a for a in actions if isinstance(a, EmitEvent) and a.reason == Intent.MOVED]
        may_mark = self._backoff.allows(shown.uid, MarkPod, now_s)
        yield from _end_writes(marks if may_mark else (), ends, moved)
        yield from (Write((a,), _lane_of_workloads(a)) for a in actions if isinstance(a, WorkloadAction))
        if not (ends or going or marks):  # one of them may fail
            yield from self._creations(assumed, actions, facts, under_way)
        yield from (Write((a,), Lane.SURPLUS) for a in self._resizes(shown, usable, facts))
        if node_actions := self._node_requests(shown, usable, facts, time_s):
            yield Write(node_actions, Lane.SURPLUS)
        yield from self._repairs(shown, now_s)
        if under_way:  # a status says what is, not what is under way
            actions = self._actions(shown, usable, (), context, time_s)
        updates = self._status(shown, actions, has_marks=bool(marks))
        if updates:
            yield Write(updates, _lane_of_status(shown, updates))

    def _context(self, job: Job, facts: Facts, now_s: float, time_s: float) -> JobContext:
        retries = self._backoff.retries
        return JobContext(
            facts.unreachable,
            self._trouble(facts, job),
            self._master_view(job),
            facts.watch,
            retries.paused(job.uid, now_s),
            retries.most_new(job, now_s, time_s),
            facts.in_the_way,
            facts.labels if job.topology is not None and job.topology.slices is not None else {},
        )

    def _actions(
        self, job: Job, usable: Usable, slots: Sequence[Slot], context: JobContext, time_s: float
    ) -> tuple[Action, ...]:
        """The actions that the life cycle of a job requests, without those that the API server rejects at present."""
        _, actions = desired_state(job, usable.decision, slots, time_s, context)
        now_s, uid, allows = self._clock.monotonic_s(), job.uid, self._backoff.allows
        self._backoff.forget_unwanted(uid, (*actions, *usable.requests), now_s)
        if not allows(uid, DeletePod, now_s):  # nobody is moved
            actions = tuple(a for a in actions if not (isinstance(a, EmitEvent) and a.reason == Intent.MOVED))
        return tuple(a for a in actions if isinstance(a, MarkPod) or allows(uid, type(a), now_s))

    def _status(self, job: Job, actions: Iterable[Action], *, has_marks: bool) -> tuple[Action, ...]:
        """Return the update of the status with its events.

        Nothing if only events are left, which would be sent repeatedly.

        Failures are stored after their pods are marked. If the API server rejects marks, only that is stored.
        """
        kept = [a for a in actions if not (isinstance(a, EmitEvent) and a.reason == Intent.MOVED)]
        if has_marks:
            return degraded_update(job, kept) if self._backoff.knows(job.uid) else ()
        updates = status_updates(kept)
        return () if all(isinstance(a, EmitEvent) for a in updates) else updates

    def _creations(
        self, job: Job, actions: Sequence[Action], facts: Facts, under_way: Collection[CreatePod | DeletePod]
    ) -> Iterator[Write]:
        """The creations in order: objects that pods need, masters and pservers, trainers."""
        if not any(isinstance(a, CreatePod) for a in actions):
            return
        generation, until_s = self._ensured.get(job.uid, (-1, 0.0))
        if generation != job.generation or self._clock.monotonic_s() >= until_s:
            yield Write(tuple(a for a in actions if isinstance(a, Need)), Lane.BASE)
            return
        pods = [a for a in self._placed(job, actions, facts) if isinstance(a, CreatePod)]
        base = [pod for pod in pods if pod.role is not Role.TRAINER]
        yield from (Write((pod,), Lane.BASE) for pod in base)
        is_lacking = any(sum(pod.role is fixed.role for pod in job.pods) < fixed.count for fixed in job.fixed)
        if is_lacking or any(isinstance(a, CreatePod) and a.role is not Role.TRAINER for a in under_way):
            return
        lacking = job.min_trainers - len(job.live_trainers)
        for number, pod in enumerate(pods):
            yield Write((pod,), Lane.MINIMUM if number < lacking else Lane.SURPLUS)

    def _placed(self, job: Job, actions: Iterable[Action], facts: Facts) -> tuple[Action, ...]:
        """The creations, with node affinity for the planned nodes and against nodes to avoid."""
        if self._closed[0] is not facts.nodes:
            self._closed = (facts.nodes, nodes_without_lending(facts.nodes))
        placed = require_domains(actions, job, facts.nodes)
        retries, now_s = self._backoff.retries, self._clock.monotonic_s()
        placed = keep_away(placed, job, facts.watch.avoided, facts.nodes)
        rejecting = (*retries.rejecting(job, now_s), *retries.tried(job, now_s))
        placed = away_when_created(placed, job, rejecting, facts.nodes)
        placed = pin(placed, len(facts.nodes), self._unpinned)
        placed = lend(placed, job, self._limits, self._unpinned, self._closed[1])
        return allow_eviction(placed, job, self._limits)

    def _resizes(self, job: Job, usable: Usable, facts: Facts) -> Iterator[ResizePod]:
        """The changes of CPU requests that are still to be made; no request is raised while serving waits."""
        if not usable.requests or not self._backoff.allows(job.uid, ResizePod, self._clock.monotonic_s()):
            return
        running = {pod.uid: pod.running_request for pod in job.live_trainers}
        for change in usable.requests:
            request = running.get(change.pod_uid)
            if request is None or request.requested_milli == change.cpu_milli:
                continue
            if change.cpu_milli <= request.charged_milli or not facts.serving_waits:
                yield change

    def _node_requests(self, job: Job, usable: Usable, facts: Facts, time_s: float) -> tuple[Action, ...]:
        """The request pods of a job that come and go, each followed by its event."""
        if not usable.may_request_nodes and job.is_schedulable:
            return ()
        requests, now_s = facts.node_requests.get(job.key, ()), self._clock.monotonic_s()
        found = node_request_actions(job, requests, usable.decision, self._limits.nodes.expected, time_s)
        allowed: list[Action] = []
        for action in found:
            if self._backoff.allows(job.uid, type(action), now_s):
                allowed += [action] if action.event is None else [action, action.event]
        return tuple(allowed)

    def _repairs(self, job: Job, now_s: float) -> Iterator[Write]:
        """Create again the objects that a job with pods needs, in case they were deleted; jobs at different times."""
        if not (job.is_schedulable and job.live_trainers):
            return
        generation, due_s = self._repaired.get(job.uid, (-1, 0.0))
        if generation != job.generation:
            self._repaired[job.uid] = (job.generation, now_s + REPAIR_S * (0.5 + 0.5 * spread(job.uid)))
        elif now_s >= due_s:
            self._repaired[job.uid] = (job.generation, now_s + REPAIR_S)
            yield Write(needs(job), Lane.BASE)

    def _of_workload(self, job: Job, usable: Usable) -> list[Write]:
        """The writes of a workload that another controller owns: its Kueue Workloads, and its resize or why not."""
        free = sum(role is Role.TRAINER for role, _ in usable.slots)
        actions = workload_actions(job, usable.decision, free, self._clock.now_s())
        now_s = self._clock.monotonic_s()
        self._backoff.forget_unwanted(job.uid, actions, now_s)
        allowed = {type(a): self._backoff.allows(job.uid, type(a), now_s) for a in actions}
        own = [a for a in actions if isinstance(a, WorkloadAction)]
        rest = [a for a in actions if not isinstance(a, WorkloadAction)]
        refusal = self._backoff.refusal(job.uid, now_s) if own else None
        if refusal is not None and not rest:  # a TrainingJob has it in its status
            message = f"edl does not resize this workload: {refusal[1]}"
            rest = [EmitEvent(job.key, job.uid, EventKind.WARNING, Reason.NOT_RESIZED.value, message)]
            allowed[EmitEvent] = self._backoff.allows(job.uid, EmitEvent, now_s)
        elif not job.problem and self._backoff.refused_resize(job.uid) is None:
            self._noticed.pop(job.uid, None)
        writes = [Write((a,), _lane_of_workloads(a)) for a in own if allowed[type(a)]]
        news = tuple(a for a in rest if not isinstance(a, EmitEvent) or self._noticed.get(job.uid) != a.message)
        if news and all(allowed[type(a)] for a in rest):
            writes.append(Write(news, _lane_of_resize(job, news)))
        return writes

    def _trouble(self, facts: Facts, job: Job) -> tuple[str, str] | None:
        """(reason, message) for the condition Degraded; None if there is nothing to report."""
        refused = self._backoff.refusal(job.uid, self._clock.monotonic_s())
        if refused is not None:
            return refused
        if rejected := self._backoff.retries.problem(job):
            return rejected
        if limited := limited_priority(job, self._limits):
            return limited
        optional = () if job.is_best_effort else (PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS)
        if missing := [name for name in facts.missing_priority_classes if name not in optional]:
            return (
                "PriorityClassMissing",
                f"the cluster has no PriorityClass {', '.join(missing)}; trainers start with the next higher one, or"
                " with none, until you run kubectl apply -f deploy/base/priorityclasses.yaml",
            )
        return None


def is_exclusive(write: Write) -> bool:
    """Return True if a job's next writes depend on how this one ends, so that none is computed before that."""
    return not isinstance(write.actions[0], CreatePod | DeletePod)


def _is_real(pod_uid: str) -> bool:
    return not pod_uid.startswith(UID_OF_ASSUMED)


def _end_writes(marks: Iterable[MarkPod], ends: Iterable[DeletePod], moved: Iterable[EmitEvent]) -> Iterator[Write]:
    """The writes that mark and delete pods; they do not wait for each other. The first one reports moved pods."""
    yield from (Write((mark,), Lane.END) for mark in marks)
    events = tuple(moved)
    for end in ends:
        yield Write((end, *events), Lane.EVICT if end.intent == Reason.SERVING_NEEDS_ROOM else Lane.END)
        events = ()


def _lane_of_status(job: Job, updates: Iterable[Action]) -> Lane:
    """The lane of a status write: early for the first and last status of a job and for lost pods, else late."""
    if job.is_oversized:
        return Lane.OVERSIZED
    status = next((a.status for a in updates if isinstance(a, PatchStatus)), None)
    if status is None:
        return Lane.STATUS
    before = job.status
    if before is None or (status.phase.is_final and not before.phase.is_final):
        return Lane.REPORT
    roles = ((before.trainer, status.trainer), (before.pserver, status.pserver), (before.master, status.master))
    return Lane.LOSS if any(now.ready < old.ready for old, now in roles) else Lane.STATUS


def _lane_of_resize(job: Job, actions: Iterable[Action]) -> Lane:
    resize = next((a for a in actions if isinstance(a, ResizeWorkload)), None)
    if resize is None:
        return Lane.STATUS
    if resize.count < resize.before:
        return Lane.EVICT if resize.resize.reason == Reason.SERVING_NEEDS_ROOM else Lane.END
    return Lane.MINIMUM if resize.before < job.min_trainers else Lane.SURPLUS


def _lane_of_workloads(action: WorkloadAction) -> Lane:
    """The lane of changes of Kueue Workloads: early if they release quota, else beside the pods that need it."""
    if isinstance(action, ChangeWorkloads):
        if action.gone:
            return Lane.END
        return Lane.SURPLUS if all(one.index for one in action.new) else Lane.BASE
    return Lane.STATUS if all(one.report is Report.READY for one in action.reports) else Lane.END
