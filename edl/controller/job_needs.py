"""What each job lacks: the actions that bring it closer to its decision, and the repairs that are due.

Between rounds it remembers which jobs lacked nothing, when repairs are due, and what was refused. Losing this memory
costs time and never correctness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.plan_maker import StartablePod
from edl.controller.ports import Recorder
from edl.controller.settled_jobs import Given, SettledJobs, turn_of
from edl.errors import PlanError
from edl.lifecycle.broken_nodes import keep_away, one_probe, watch_nodes
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext, desired_state
from edl.lifecycle.domains import require_domains
from edl.lifecycle.lending import lend, nodes_without_lending
from edl.lifecycle.lent_cpu.guard import judge_requests
from edl.lifecycle.node_pinning import pin, update_unpinned
from edl.lifecycle.node_requests import allow_eviction, node_request_actions
from edl.lifecycle.node_watch import NodeWatch
from edl.lifecycle.pod_actions import needs
from edl.lifecycle.resized_workload import workload_actions
from edl.lifecycle.running_requests import changed_requests, keep_refusals
from edl.lifecycle.tenancy import limited_priority
from edl.model.actions import Action, DeletePod, EmitEvent, Intent, MarkPod, PatchStatus, ResizePod
from edl.model.cluster import ClusterSnapshot, NodeRequest
from edl.model.jobs import Job
from edl.model.names import PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS, JobKey, Role
from edl.model.plan import Limits, ScaleDecision

JobActions = tuple[Job, tuple[Action, ...]]
REPAIR_S = 1800.0
"""How often edl makes sure that what a running job needs still exists."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one round knows, besides the jobs.

    Attributes:
        snapshot: the cluster as observed.
        decisions: by job; a job without one keeps its pods, and its status is still updated.
        places: by job, role and node of the pods that fit now; no others are created.
        lost: UIDs of pods that no kubelet will end.
        nodes: what is known about nodes on which trainers failed or hung.
        requests: by job, the changed CPU requests of its trainers.
        closed: nodes on which trainers do not lend.
        asked: by job, its requests for nodes.
        common: what every job depends on.
    """

    snapshot: ClusterSnapshot
    decisions: Mapping[JobKey, ScaleDecision]
    places: Mapping[JobKey, Sequence[tuple[Role, str]]]
    lost: frozenset[str]
    nodes: NodeWatch
    requests: Mapping[JobKey, tuple[ResizePod, ...]]
    closed: frozenset[str]
    asked: Mapping[JobKey, Sequence[NodeRequest]]
    common: tuple[object, ...]

    def concern(self, key: JobKey) -> bool:
        """True if some pod of the job may start, changes its request, or stands for a node."""
        return key in self.places or key in self.requests or key in self.asked


class JobNeeds:
    """Computes what jobs lack.

    Args:
        clock: for pauses and ages.
        recorder: gets what fails.
        backoff: which writes wait after a refusal.
        limits: what the operator allows.
        master_view: what the master monitor knows about a job's master.
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
        self._loose: dict[tuple[str, str], float] = {}
        self._held: dict[str, float] = {}  # until when trainers keep their request, by UID
        self._settled = SettledJobs()
        self._idle: dict[str, tuple[Job, ScaleDecision | None, MasterView | None, object]] = {}
        """By UID, the jobs that lacked nothing when they were last looked at, and what that depended on."""
        self._repaired: dict[str, tuple[int, float]] = {}  # (generation, when the next repair is due) by UID
        self._noticed: dict[str, str] = {}  # the last event of each workload that is no TrainingJob, by UID

    def use(self, limits: Limits) -> None:
        """From now on, use these limits; every job is looked at anew."""
        self._limits, self._settled = limits, SettledJobs()
        self._idle.clear()

    def keep_only(self, uids: set[str]) -> None:
        """Forget all other jobs."""
        self._settled.keep_only(uids)
        self._idle = {uid: known for uid, known in self._idle.items() if uid in uids}
        self._repaired = {uid: due for uid, due in self._repaired.items() if uid in uids}
        self._noticed = {uid: message for uid, message in self._noticed.items() if uid in uids}

    def note_event(self, event: EmitEvent) -> None:
        """Remember an event of a workload that is no TrainingJob, which is not repeated."""
        self._noticed[event.job_uid] = event.message

    def read(
        self,
        snapshot: ClusterSnapshot,
        decisions: Mapping[JobKey, ScaleDecision],
        starts: Iterable[StartablePod] | None,
        lost: frozenset[str],
    ) -> Facts:
        """What a round knows, for `of`; see `Facts`.

        Without `starts` it is not known yet which nodes get pods, so no CPU request changes.
        """
        places: dict[JobKey, list[tuple[Role, str]]] = defaultdict(list)
        nodes = watch_nodes(snapshot, self._limits)
        for start in (begun := one_probe(starts or (), nodes.avoided)):
            places[start.job].append((start.role, start.node))
        self._loose = update_unpinned(self._loose, snapshot, self._clock.monotonic_s())
        busy = {start.node for start in begun}
        requests = self._changed_requests(snapshot, busy) if starts is not None else {}
        closed = nodes_without_lending(snapshot.nodes) if self._limits.surplus_cpu_request < 1.0 else frozenset()
        asked: dict[JobKey, list[NodeRequest]] = defaultdict(list)
        for request in snapshot.node_requests:
            asked[request.job].append(request)
        common = (lost, nodes, snapshot.missing_priority_classes)
        return Facts(snapshot, decisions, places, lost, nodes, requests, closed, asked, common)

    def of(self, job: Job, facts: Facts) -> tuple[Action, ...]:
        """What a TrainingJob lacks."""
        decision, master_view = facts.decisions.get(job.key), self._master_view(job)
        if self._lacks_nothing_still(job, decision, master_view, facts):
            return ()
        found = self._find(job, decision, master_view, facts)
        if found:
            self._idle.pop(job.uid, None)
        else:
            self._idle[job.uid] = (job, decision, master_view, facts.common)
        return found

    def _lacks_nothing_still(
        self, job: Job, decision: ScaleDecision | None, master_view: MasterView | None, facts: Facts
    ) -> bool:
        """True if the job lacked nothing, and nothing has changed since; a cluster at rest asks for all jobs."""
        known = self._idle.get(job.uid)
        if known is None or known[0] is not job or known[3] != facts.common or facts.concern(job.key):
            return False
        if not (known[1] is decision or known[1] == decision) or known[2] != master_view:
            return False
        repair, now_s = self._repaired.get(job.uid), self._clock.monotonic_s()
        is_intact = repair is None or (repair[0] == job.generation and now_s < repair[1])
        return is_intact and not self._backoff.knows(job.uid) and self._settled.lasts(job.uid, self._clock.now_s())

    def _find(
        self, job: Job, decision: ScaleDecision | None, master_view: MasterView | None, facts: Facts
    ) -> tuple[Action, ...]:
        """Find what a TrainingJob lacks."""
        snapshot, nodes = facts.snapshot, facts.nodes
        context = JobContext(facts.lost, self._trouble(snapshot, job), master_view, nodes)
        given = Given(job, decision, facts.places.get(job.key, ()), context)
        actions = self._desired(given, facts.requests.get(job.key, ()))
        if actions:  # most jobs lack nothing
            actions = require_domains(actions, job, snapshot.nodes)
            actions = keep_away(actions, job, nodes.avoided, snapshot.nodes)
            actions = pin(actions, len(snapshot.nodes), self._loose)
            actions = lend(actions, job, self._limits, self._loose, facts.closed)
            actions = allow_eviction(actions, job, self._limits)
        return (*self._repairs(job), *actions, *self._node_requests(given, facts.asked.get(job.key, ())))

    def of_workload(self, job: Job, facts: Facts) -> tuple[Action, ...]:
        """What a workload lacks whose own controller makes its pods."""
        free = sum(role is Role.TRAINER for role, _ in facts.places.get(job.key, ()))
        actions = workload_actions(job, facts.decisions.get(job.key), free, self._clock.now_s())
        if not job.problem:
            self._noticed.pop(job.uid, None)
        now_s = self._clock.monotonic_s()
        self._backoff.forget_unwanted(job.uid, actions, now_s)
        if not all(self._backoff.allows(job.uid, type(action), now_s) for action in actions):
            return ()
        return tuple(a for a in actions if not isinstance(a, EmitEvent) or self._noticed.get(job.uid) != a.message)

    def _node_requests(self, given: Given, requests: Sequence[NodeRequest]) -> tuple[Action, ...]:
        """The request pods of a job that come and go."""
        now_s, groups = self._clock.monotonic_s(), self._limits.expected_nodes
        actions = node_request_actions(given.job, requests, given.decision, groups, self._clock.now_s())
        return tuple(a for a in actions if self._backoff.allows(given.job.uid, type(a), now_s))

    def _repairs(self, job: Job) -> tuple[Action, ...]:
        """What a job with pods needs is created again if somebody deleted it; each job has its own turn."""
        now_s, known = self._clock.monotonic_s(), self._repaired.get(job.uid)
        if known is not None and known[0] == job.generation and now_s < known[1]:
            return ()
        if not (job.is_schedulable and job.live_trainers):
            return ()
        if known is None:
            first_s = now_s + REPAIR_S * (0.5 + 0.5 * turn_of(job.uid))
            self._repaired[job.uid] = (job.generation, first_s)
            return ()
        self._repaired[job.uid] = (job.generation, now_s + REPAIR_S)
        return needs(job)

    def _changed_requests(
        self, snapshot: ClusterSnapshot, busy_nodes: set[str]
    ) -> Mapping[JobKey, tuple[ResizePod, ...]]:
        """The CPU requests of running trainers that change, by job."""
        if not self._limits.lend_running:
            return {}
        self._held = keep_refusals(self._held, snapshot, self._clock.monotonic_s())
        changes = changed_requests(snapshot, self._limits, busy_nodes, self._held)
        judged = judge_requests(snapshot, self._limits, changes, busy_nodes, self._held)
        for problem in judged.problems:
            self._recorder.failed("CPU requests", PlanError(f"{problem}; this is a bug in edl"))
        return judged.allowed

    def _desired(self, given: Given, requests: tuple[ResizePod, ...]) -> tuple[Action, ...]:
        """What a job lacks, with the changed requests of its trainers."""
        job, time_s = given.job, self._clock.now_s()
        if self._settled.has(given, time_s):
            now_s = self._clock.monotonic_s()
            self._backoff.forget_unwanted(job.uid, requests, now_s)
            return requests if self._backoff.allows(job.uid, ResizePod, now_s) else ()
        try:
            _, actions = desired_state(job, given.decision, given.places, time_s, given.context)
        except Exception as error:  # a job that breaks this code must not stop the other jobs
            self._recorder.failed(f"job {job.key}", error)
            self._settled.note(given, time_s, lacks=True)
            return ()
        self._settled.note(given, time_s, lacks=bool(actions))
        actions = (*actions, *requests)
        now_s = self._clock.monotonic_s()
        self._backoff.forget_unwanted(job.uid, actions, now_s)
        if not self._backoff.allows(job.uid, PatchStatus, now_s):  # no event before the status that it explains
            actions = tuple(a for a in actions if not isinstance(a, EmitEvent))
        if not self._backoff.allows(job.uid, DeletePod, now_s):  # nobody is moved
            actions = tuple(a for a in actions if not (isinstance(a, EmitEvent) and a.reason == Intent.MOVED))
        return tuple(a for a in actions if isinstance(a, MarkPod) or self._backoff.allows(job.uid, type(a), now_s))

    def _trouble(self, snapshot: ClusterSnapshot, job: Job) -> tuple[str, str] | None:
        """(reason, message) for the condition Degraded; None if there is nothing to report."""
        refused = self._backoff.refusal(job.uid, self._clock.monotonic_s())
        if refused is not None:
            return refused
        if limited := limited_priority(job, self._limits):
            return limited
        optional = () if job.is_best_effort else (PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS)
        if missing := [name for name in snapshot.missing_priority_classes if name not in optional]:
            return (
                "PriorityClassMissing",
                f"the cluster has no PriorityClass {', '.join(missing)}; pods start without it until you run"
                " kubectl apply -f deploy/base/priorityclasses.yaml",
            )
        return None
