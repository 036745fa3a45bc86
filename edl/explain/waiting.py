"""Explains why a job does not run: what it needs, what is missing on which nodes, and behind which job it waits.

Times are given in whole minutes, and none that has passed, so that a sentence seldom changes by itself. Thousands of
jobs may wait at once, so what jobs of one kind share is written once and filled in.
"""

from __future__ import annotations

from edl.explain.kueue_quotas import KueueQuotas
from edl.explain.queue_capacity import QueueCapacities
from edl.explain.rejected.rejections import Rejections
from edl.explain.together import TogetherWriter
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.resources import DEVICE_PREFIX, HOST_PORT_PREFIX, RULE_PREFIX, PodShape, Resources
from edl.model.units import amount, amounts, count, listed, minutes, plain, rank_of
from edl.planner.admission.trial import waiting_since_s
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.reasons import Cause, Finding
from edl.planner.findings.scarcity import held_by_minimums, open_to_any, scarce_of, slots_without_training
from edl.planner.problem import BoolArray, IntArray, JobDemand
from edl.planner.quota import LIMITS, QuotaRow, QuotaShortage

Kind = tuple[object, ...]


class WaitingWriter:
    """Writes why jobs of one plan do not run."""

    def __init__(self, context: DecisionContext) -> None:
        """Prepare what the sentences of all jobs share."""
        self._context, self._problem = context, context.problem
        self._number = {shape: i for i, shape in enumerate(context.problem.shapes)}
        self.rejections = Rejections(context.problem)
        self.together = TogetherWriter(context)
        self._misfits: dict[Kind, tuple[str, str]] = {}
        self._needs: dict[Kind, str] = {}
        self._lacking: dict[Kind, str] = {}
        self._behind: dict[int, str] = {}
        self._left: dict[bytes, IntArray] = {}
        self._held: dict[bytes, IntArray] = {}
        self._most: dict[bytes, IntArray] = {}
        self._serving = ""
        self._queue_capacities, self._kueue = (
            QueueCapacities(context.problem.snapshot),
            KueueQuotas(context.problem.snapshot),
        )

    def write(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        """Write the short and the full explanation of a job that could start but gets no trainers."""
        needs = self._needs_of(demand)
        match found.cause:
            case Cause.QUOTA_TOO_SMALL:
                row = next(use.row for use in demand.quota_uses if use.total(demand.min_trainers) > use.row.whole)
                return (
                    f"its minimum exceeds the quota of {row.owner}",
                    f"needs {needs}; {self._most_of(row)}",
                )
            case Cause.WAITS_FOR_QUOTA if found.shortage is not None:
                behind = f" behind {found.other}" if found.other is not None else ""
                waits = f"waits for quota of {found.shortage.row.owner}{behind}"
                return (
                    waits,
                    f"{waits}: needs {needs}; {self._used(found.shortage)}{self._capacity_of(found.shortage.row)}",
                )
            case Cause.NEVER_FITS:
                short, full = self._misfit(demand)
                if apart := self.together.lacks(demand, alone=True):
                    short = full = apart
                return short, f"needs {needs}, which does not fit even without other jobs: {full}"
            case Cause.LOST_TO_SERVING:
                return "serving took its capacity", f"needs {needs}; {self.requests_of_serving()} took the capacity"
            case Cause.BEHIND_HEAD:
                head = self._context.admission.head[demand.index]
                return f"waits behind {found.other}", f"{self._waits_behind(head)}; it needs {needs}"
            case _:
                apart = self.together.lacks(demand, alone=False)
                return (
                    apart or f"waits for capacity for {_pods_of(demand)}",
                    f"waits for capacity: needs {needs}; {apart or self._lacks(demand)}",
                )

    def base_of_kueue(self, job: Job) -> str:
        """Say which quota a job waits for whose Workloads edl makes.

        Empty if none is missing, or if that is not known.
        """
        return self._kueue.of_base(job)

    def quota_reached(self, shortage: QuotaShortage) -> tuple[str, str]:
        """Write the short and the full explanation of a job that a quota keeps from one more trainer."""
        if self._kueue.limits(shortage.row):
            return self._kueue.reached(shortage)
        short, full = quota_reached(shortage, self._word_of(shortage.row))
        return short, full + self._capacity_of(shortage.row)

    def _most_of(self, row: QuotaRow) -> str:
        found = self._queue_capacities.of_row(row)
        if found is None or found.use.most == row.whole:
            return f"{row.owner} may never use more than {quota_of(row)}"
        return f"{row.owner} may use {quantity(row, row.whole)} now{self._capacity_of(row)}"

    def _used(self, shortage: QuotaShortage) -> str:
        row = shortage.row
        if self._kueue.limits(row):
            return self._kueue.now(row)
        used, whole = quantity(row, shortage.used), quota_of(row, self._word_of(row))
        if not row.others:
            return f"running jobs of {row.owner} need at least {used} of {whole}"
        needed = f", and running jobs need at least {used}" if shortage.used else ""
        return f"of {row.owner}, pods that edl does not plan use {quantity(row, row.others)} of {whole}{needed}"

    def _word_of(self, row: QuotaRow) -> str:
        """The noun for a limit: `share` for a Queue object, which owns and borrows; else `quota`."""
        return "quota" if self._queue_capacities.of_row(row) is None else "share"

    def _capacity_of(self, row: QuotaRow) -> str:
        """Say how much of a queue's share is borrowed, and which queues use the rest; empty for other limits."""
        if self._kueue.limits(row):
            return self._kueue.holders(row)
        found = self._queue_capacities.of_row(row)
        if found is None:
            return ""
        holders = found.holders()
        return f"; the queue has {found.origin()}" + (f"; {holders}" if holders else "")

    def requests_of_serving(self) -> str:
        """The serving pods for which trainers are deleted: the pod's name if it is one, and what they request."""
        if not self._serving:
            self._serving = _requests_of_serving(self._context)
        return self._serving

    def _needs_of(self, demand: JobDemand) -> str:
        """Describe everything that a job needs to start, by pods and in total."""
        kind = _kind_of(demand)
        if kind not in self._needs:
            self._needs[kind] = f"{_pods_of(demand)} ({amounts(_needed(demand))} in total)"
        return self._needs[kind]

    def _waits_behind(self, head: int) -> str:
        if head not in self._behind:
            self._behind[head] = _behind(self._problem.demands[head], self._context)
        return self._behind[head]

    def _lacks(self, demand: JobDemand) -> str:
        """Say what the first job in the queue would find if running jobs shrank to their minimums."""
        kind = _kind_of(demand)
        if kind not in self._lacking:
            self._lacking[kind] = self._write_lack(demand)
        return self._lacking[kind]

    def _write_lack(self, demand: JobDemand) -> str:
        shapes = [demand.job.trainer, *(f.shape for f in demand.job.fixed if f.count)]
        is_open = open_to_any(self._problem, [self._number[s] for s in shapes])
        left = dict(zip(self._problem.names, self._left_on(is_open).tolist(), strict=True))
        needed = _needed(demand)
        leave = "serving and the minimums of running jobs leave"
        for name in sorted(needed, key=rank_of):
            if left[name] < needed[name]:
                return f"{leave} at most {amount(name, left[name])}{self._largest_minimum(name, is_open)}"
        return f"{leave} enough in total, but not on nodes that could hold its pods"

    def _left_on(self, is_open: BoolArray) -> IntArray:
        """(resources,) what is free on some nodes, and what all surplus trainers request."""
        known = is_open.tobytes()
        if known not in self._left:
            packing, problem = self._context.admission.packing, self._problem
            free = packing.free[is_open].clip(min=0).sum(axis=0)
            for j in packing.members:
                surplus = max(0, packing.count[j] - problem.demands[j].min_trainers)
                free = free + surplus * problem.request[problem.demands[j].shape]
            self._left[known] = free
        return self._left[known]

    def _largest_minimum(self, resource: str, is_open: BoolArray) -> str:
        """The running job whose minimum holds most of a resource on those nodes, in brackets; empty if none does."""
        known = is_open.tobytes()
        if known not in self._held:
            self._held[known] = held_by_minimums(self._context.admission.packing, is_open)
        held = self._held[known][:, self._problem.names.index(resource)].tolist()
        most, key = max(
            ((n, demand.job.key) for n, demand in zip(held, self._problem.demands, strict=True) if n),
            default=(0, JobKey("", "")),
        )
        return f" (the largest minimum there is that of {key}: {amount(resource, most)})" if most else ""

    def _misfit(self, demand: JobDemand) -> tuple[str, str]:
        """Name the pod that fits on no node, in short and in full; else say that the pods do not fit together."""
        kind = _kind_of(demand)
        if kind not in self._misfits:
            self._misfits[kind] = self._write_misfit(demand)
        return self._misfits[kind]

    def _write_misfit(self, demand: JobDemand) -> tuple[str, str]:
        problem = self._problem
        shapes = [("trainer", demand.job.trainer), *((f.role.value, f.shape) for f in demand.job.fixed if f.count)]
        for role, shape in shapes:
            is_open = problem.opened[self._number[shape]]
            if not problem.snapshot.nodes:
                return "the cluster has no nodes", "the cluster has no nodes"
            if not is_open.any():
                none = f"no node accepts its {role}s"
                rule = self.rejections.by_rule(shape)
                return f"{none}: {rule}" if rule else none, f"{none} ({self.rejections.of_all(shape)})"
            largest = dict(zip(problem.names, self._most_free(is_open).tolist(), strict=True))
            for name in problem.names:
                requested, most = shape.request[name], max(0, largest[name])
                if requested > most and name.startswith(RULE_PREFIX):
                    return _same(f"{name}: no more on any node that accepts its {role}s")
                if requested > most:
                    requests = f"a {role} requests {amount(name, requested)}"
                    whole = self._largest_of(name, is_open)
                    if requested <= whole:
                        return self._held_by_others(requests, name, most, shape)
                    most = whole
                    return (
                        f"{requests}, and the largest node has {amount(name, most)}",
                        f"{requests}, and no node that accepts it has more than {amount(name, most)}"
                        f"{self.rejections.of_larger(shape)}",
                    )
        return self._do_not_fit_together(demand)

    def _largest_of(self, resource: str, is_open: BoolArray) -> int:
        """The largest allocatable amount of a resource on one of these nodes, whoever uses it."""
        return int(self._problem.allocatable[is_open, self._problem.names.index(resource)].max())

    def _held_by_others(self, requests: str, resource: str, most: int, shape: PodShape) -> tuple[str, str]:
        """Say that other pods hold on every node what a pod requests."""
        if resource.startswith(HOST_PORT_PREFIX):
            return _same(f"{requests}, which other pods use on every node that accepts it")
        left = f"{requests}, and other pods leave none on a node"
        if most:
            left = f"{requests}, and other pods leave at most {amount(resource, most)} on a node"
        return left, f"{left} that accepts it{self.rejections.of_larger(shape)}"

    def _most_free(self, is_open: BoolArray) -> IntArray:
        """(resources,) the most that one of some nodes has free without any training."""
        known = is_open.tobytes()
        if known not in self._most:
            self._most[known] = self._problem.empty[is_open].max(axis=0)
        return self._most[known]

    def _do_not_fit_together(self, demand: JobDemand) -> tuple[str, str]:
        full = "each pod fits on some node, but all of them together do not"
        roles = [("trainer", demand.job.trainer, demand.min_trainers)]
        roles += [(f.role.value, f.shape, f.count) for f in demand.job.fixed]
        for role, shape, least in roles:
            slots = slots_without_training(self._problem, self._number[shape])
            if slots < least:
                hold = f"the nodes can hold at most {count(slots, role)}"
                fit = f"{hold}, and its minimum is {least}" if role == "trainer" else f"{hold}, and it needs {least}"
                fit += self._by_rules(shape)
                return fit, f"{full}; {fit}"
        return "its pods do not fit on the nodes together", full

    def _by_rules(self, shape: PodShape) -> str:
        """The rules, devices and ports that leave no more slots, in brackets; empty if there are none."""
        named = [name for name in shape.request if name.startswith((RULE_PREFIX, DEVICE_PREFIX, HOST_PORT_PREFIX))]
        scarce = scarce_of(self._problem, self._number[shape], sorted(named))
        return f" ({listed(plain(name) for name in scarce)})" if scarce else ""


def _same(line: str) -> tuple[str, str]:
    """Use one line both as the short line and as the account."""
    return line, line


def quota_of(row: QuotaRow, word: str = "quota") -> str:
    """How much a queue, or the jobs of a namespace, may use of a resource."""
    return f"its {word} of {quantity(row, row.whole)}"


def quota_reached(shortage: QuotaShortage, word: str) -> tuple[str, str]:
    """Write the short and the full explanation of a job that a quota keeps from one more trainer."""
    row, left = shortage.row, shortage.row.limit - shortage.used
    requests = f"a trainer requests {quantity(row, shortage.needs)}"
    used = quantity(row, shortage.used + row.others)
    full = f"{row.owner} uses {used} of {quota_of(row, word)}; {requests}"
    if left <= 0:
        return f"{row.owner} uses all of {quota_of(row, word)}; {requests}", full
    return f"{row.owner} has {quantity(row, left)} left of {quota_of(row, word)}; {requests}", full


def quantity(row: QuotaRow, number: int) -> str:
    """Format an amount of a limited resource; a limit on pods names them."""
    resource = row.resource.removeprefix(LIMITS)
    return amount(resource, number) if resource == row.resource else f"{amount(resource, number)} in limits"


def _kind_of(demand: JobDemand) -> Kind:
    """Make a key of a job: jobs with equal keys need the same capacity, and differ in name, age and queue only."""
    return demand.shape, demand.min_trainers, demand.job.fixed


def _pods_of(demand: JobDemand) -> str:
    pods = [count(f.count, f.role.value) for f in sorted(demand.job.fixed, key=lambda f: f.role) if f.count]
    return listed([count(demand.min_trainers, "trainer"), *pods])


def _requests_of_serving(context: DecisionContext) -> str:
    due = sum(context.served.due.values())
    snapshot, grace_s = context.problem.snapshot, context.problem.limits.serving.grace_s
    needy = [pod for pod in snapshot.waiting_serving if pod.needs_capacity]
    pods = [pod for pod in needy if pod.tried or snapshot.observed_at_s - pod.created_s >= grace_s]
    total = Resources()
    for shape, number in context.served.due.items():
        total = total + context.problem.shapes[shape].request * number
    if due == len(pods) == 1:
        return f"serving pod {pods[0].namespace}/{pods[0].name} ({amounts(total)})"
    return f"{count(due, 'serving pod')} ({amounts(total)} in total)"


def _needed(demand: JobDemand) -> Resources:
    total = demand.job.trainer.request * demand.min_trainers
    for fixed in demand.job.fixed:
        total = total + fixed.shape.request * fixed.count
    return total


def _behind(first: JobDemand, context: DecisionContext) -> str:
    """Name the job that this one waits behind, and say whether younger jobs may still start before that one."""
    waited_s = context.problem.snapshot.observed_at_s - waiting_since_s(first)
    limit_s = context.problem.limits.sharing.head_wait_s
    key = first.job.key
    if waited_s >= limit_s:
        return f"waits behind {key}, which has waited over {minutes(limit_s)}: no younger job starts before it"
    return (
        f"waits behind {key}, which has waited {minutes(waited_s)};"
        f" after {minutes(limit_s)} no younger job starts before it"
    )
