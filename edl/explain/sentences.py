"""Explains a plan: for each job a short line and a full account.

The short line (`7 of 12: cpu is full on pool gpu-a`) is shown by `kubectl get`, events and `edl plan`. The account
adds which jobs hold the capacity, what one more trainer would cost and how long a wait lasts. Both are written from
the finished packing; costs are counted in whole pods on a node, not read from dual values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from edl.explain.headroom import headroom_line
from edl.explain.next_size import next_size
from edl.explain.places import MORE_LATER, Places, avoided_nodes
from edl.explain.speeds.steps import not_worth_it, resting
from edl.explain.waiting import WaitingWriter
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.names import how_to_resume
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.resources import CPU
from edl.model.status import Reason
from edl.model.times import text_of
from edl.model.units import amount, count, listed
from edl.planner.clock import Clock
from edl.planner.decide import Study
from edl.planner.findings.context import DecisionContext, Scarce
from edl.planner.findings.reasons import Cause, Finding, find_reason, makes_way_for
from edl.planner.findings.rule_steps import has_next_step, is_by_steps
from edl.planner.findings.scarcity import open_nodes
from edl.planner.guard import DEAD_BAND
from edl.planner.objective import Trade, TradeVerdict
from edl.planner.packing import has_load_left
from edl.planner.problem import JobDemand

NAMED_HOLDERS = 2


@dataclass(frozen=True, slots=True)
class Sentence:
    """The texts about one job: a reason, a short line and a full account.

    Attributes:
        short: one line, without times that change from one decision to the next.
        full: the account; empty if the short line says it all.
    """

    short: str
    full: str = ""


def with_sentences(study: Study, clock: Clock) -> ScalePlan:
    """The plan of a study with a short line and an account for every job.

    Once the time is over, the line of a job that the planner counted is its count and the reason's name.
    """
    writer = _Writer(study.final_context)
    jobs = {job.key: job for job in study.final_context.problem.snapshot.jobs}

    def worded(decision: ScaleDecision) -> ScaleDecision:
        if clock.is_over and study.final_context.demand(jobs[decision.job]) is not None:
            clock.cut_short("sentences")
            of = f"{decision.target} of {decision.max_trainers}"
            return replace(decision, message=f"{of}: {decision.reason}; this decision had no time left to say why")
        if decision.job in study.predicted and decision.admitted:
            return replace(decision, message=_settled(decision, jobs[decision.job]))
        sentence = writer.write(jobs[decision.job])
        details = _with_cut(sentence, study.plan.cut) if _may_get_more(decision) else sentence.full
        if lending := _lending(decision):
            details = f"{details or sentence.short}; {lending}"
        return replace(decision, message=sentence.short, details=details)

    return replace(study.plan, decisions=tuple(worded(decision) for decision in study.plan.decisions))


def _settled(decision: ScaleDecision, job: Job) -> str:
    """Write the line of a workload that shrinks although its own controller, not edl, chooses which pods go."""
    of, is_named = f"{decision.target} of {decision.max_trainers}", decision.job.kind.takes_names
    if not decision.victims:
        who = "those that would go are not" if is_named else "its own controller would not delete"
        return f"{of}: keeps its pods, because {who} those whose capacity is needed"
    given = count(len(decision.victims), "pod")
    if job.refusal is not None and job.refusal.allowed < decision.current:
        return f"{of}: gives up {given}: {job.refusal.message}"
    who = "edl names them to its own controller" if is_named else "its own controller chooses which"
    return f"{of}: gives up {given} ({decision.shrink_reason}); {who}"


def _lending(decision: ScaleDecision) -> str:
    """Say how much CPU the trainers of a job lend, and how many of them serving slows; empty if they lend none."""
    if not decision.lent_cpu_milli:
        return ""
    lent = f"its trainers lend {amount(CPU, decision.lent_cpu_milli)}"
    return f"{lent}, and serving slows {count(decision.slowed, 'trainer')}" if decision.slowed else lent


def _may_get_more(decision: ScaleDecision) -> bool:
    """Return True if the job has fewer trainers than it could use, so that another plan might give it more."""
    waits = not decision.admitted and decision.reason in {Reason.MIN_UNSATISFIED, Reason.UNSCHEDULABLE}
    return waits or (decision.admitted and decision.target < decision.max_trainers)


def _with_cut(sentence: Sentence, cut: Sequence[str]) -> str:
    """Add to a job's account which stages of the decision the deadline cut short."""
    if not cut:
        return sentence.full
    ended = f"this decision ended at its deadline before it finished {listed(cut)}; the next one may give more"
    return f"{sentence.full or sentence.short}; {ended}"


def with_comparison_sentences(plan: ScalePlan, snapshot: ClusterSnapshot) -> ScalePlan:
    """A plan of a policy that is only for comparison, with a line for every job."""
    jobs = {job.key: job for job in snapshot.jobs}
    return replace(plan, decisions=tuple(replace(d, message=_compared(d, jobs[d.job])) for d in plan.decisions))


_EXCLUDED = {
    Cause.DELETING: "the job is being deleted; its pods go too",
    Cause.ENDED: "the job has ended; it gets no pods",
}


def _suspended(job: Job) -> str:
    return f"suspended; {how_to_resume(job.key.kind)} to start the job"


_SLOWED = "more trainers would slow it, by the speeds that are known"
_FIXED = {
    Cause.AT_MAX: ("at its maximum", "at its maximum"),
    Cause.SLOWED_BEYOND: (_SLOWED, _SLOWED),
    Cause.NOT_WORTH_IT: (
        "restarting other trainers would not pay",
        "trainers of other jobs would add more speed here, but too little to restart them: less than the restarts"
        f" cost, or less than {DEAD_BAND:g} of the utility of all jobs",
    ),
}


def _compared(decision: ScaleDecision, job: Job) -> str:
    of = f"{decision.target} of {decision.max_trainers}"
    pending = f"; {decision.pending} of them fit on no node and stay pending" if decision.pending else ""
    known = {
        Reason.MIN_UNSATISFIED: f"{of}: the sum of all requests allows it{pending}; it lacks pods of its minimum",
        Reason.PINNED: f"{of}: pinned at {count(job.pinned, 'trainer')}{pending}",
        Reason.AT_MAX: f"{of}: at its maximum{pending}",
        Reason.INSUFFICIENT_CAPACITY: f"{of}: the sum of all requests allows no more{pending}",
        Reason.INVALID_SPEC: job.problem,
        Reason.NOT_RESIZED: job.problem,
        Reason.FINISHING: job.problem,
        Reason.SUSPENDED: _suspended(job),
        Reason.FINISHED: _EXCLUDED[Cause.DELETING if job.deleting else Cause.ENDED],
    }
    return known[decision.reason]


class _Writer:
    """Writes the sentences of one plan; what many jobs share is looked up once."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._places = Places(context.problem.snapshot.nodes)
        self._waiting = WaitingWriter(context)
        self._full: dict[int, tuple[str, str]] = {}

    def write(self, job: Job) -> Sentence:
        """The sentence of one job."""
        found, demand = find_reason(job, self._context), self._context.demand(job)
        if demand is None:
            return _excluded(found, job, self._waiting.base_of_kueue(job))
        if demand.index not in self._context.shared.packing.count:
            return self._beside_avoided(found, job, *self._waiting.write(found, demand))
        of = f"{self._context.shared.packing.count[demand.index]} of {job.max_trainers}"
        if found.cause is not Cause.PINNED and job.pinned:
            of = f"{job.pinned} asked, {self._context.shared.packing.count[demand.index]} fit"
        short, full = self._admitted(found, demand)
        return self._beside_avoided(found, job, f"{of}: {short}", f"{of}: {full}" if full != short else "")

    def _beside_avoided(self, found: Finding, job: Job, short: str, full: str) -> Sentence:
        """Add to a sentence the nodes that the job avoids because trainers failed there, and until when."""
        avoided, until = avoided_nodes(job, found.cause, self._context.problem.snapshot)
        return Sentence(f"{short}{avoided}", f"{full or short}{until}" if full or until else "")

    def _admitted(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        if found.cause is Cause.YIELDS_TO_SERVING:
            return self._yields_to_serving(demand)
        short, full = self._held(found, demand)
        if self._context.shared.packing.count[demand.index] >= demand.live_count:
            return short, full
        gone = len(self._context.deleted(demand.index)) + len(self._context.yielded(demand.index))
        yields = f"yields {count(gone, 'trainer')}"
        if found.shrink_reason is Reason.LENDING_CLEARED:
            why = "because serving uses CPU that trainers lend"
            return f"{yields} {why}", f"{yields} {why}, so that the others have what they declare; {full}"
        arriving = makes_way_for(demand, self._context)
        if not arriving:
            return short, full
        keys = [str(self._context.problem.demands[j].job.key) for j in arriving]
        named = listed(keys if len(keys) <= NAMED_HOLDERS else [keys[0], count(len(keys) - 1, "other job")])
        verb = "starts" if len(keys) == 1 else "start"
        return f"{yields} to {named}", f"{yields} because {named} {verb}; {full}"

    def _held(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        """Say what keeps an admitted job from more trainers."""
        if found.cause is Cause.REFUSED and demand.job.refusal is not None:
            message = demand.job.refusal.message
            return message, _with_answer(demand.job.refusal) or message
        return self._held_by_planner(found, demand)

    def _held_by_planner(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        match found.cause:
            case Cause.PINNED:
                return _same(f"pinned at {count(demand.job.pinned, 'trainer')}")
            case Cause.AT_MAX | Cause.SLOWED_BEYOND | Cause.NOT_WORTH_IT:
                return _FIXED[found.cause]
            case Cause.QUOTA_USED if found.shortage is not None:
                return self._waiting.quota_reached(found.shortage)
            case Cause.GROWTH_NOT_WORTH_IT | Cause.RESTS:
                return self._by_speed(found, demand)
            case Cause.NO_ROOM:
                return self._waiting.together.located(demand, *self._nothing_fits(demand))
        return self._waits_for_time(found, demand)

    def _by_speed(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        """Say that more trainers would not make the job faster enough, or that it was resized a moment ago."""
        packing, now_s = self._context.shared.packing, self._context.problem.snapshot.observed_at_s
        have, say = packing.count[demand.index], resting if found.cause is Cause.RESTS else not_worth_it
        return say(demand.job, have, have + int(packing.slots(demand.shape).sum()), now_s)

    def _waits_for_time(self, found: Finding, demand: JobDemand) -> tuple[str, str]:
        """Say which cooldown, of this job or of another one, keeps the job from more trainers.

        Its end is named, and not how long it is off: that would change the statuses of all jobs with each plan.
        """
        end = text_of(round(self._context.problem.snapshot.observed_at_s + found.wait_s))
        if found.cause is Cause.YIELDED_LATELY:
            return (
                "cooling down after it yielded to pods of higher priority",
                f"it lost trainers to pods of higher priority; it does not grow before {end}",
            )
        if found.cause is Cause.RESERVES_FOR_OTHER:
            reserved = f"free capacity is reserved for {found.other}"
            return reserved, f"{reserved}, which yielded to pods of higher priority and does not grow before {end}"
        share = f"its fair share is {int(self._context.shared.level[demand.index])}"
        return (
            f"{share}; {found.other} is in cooldown",
            f"{share}; {found.other} has more than its own, but gave trainers to another job lately and keeps its"
            f" trainers until {end}",
        )

    def _nothing_fits(self, demand: JobDemand) -> tuple[str, str]:
        line = next_size(demand, self._context.shared.packing, self._context.scarce(demand.shape))
        if line and not self._context.scarce(demand.shape).shortages:
            return _same(line)
        short, full = self._one_does_not_fit(demand)
        return (line, f"{line}; {full}") if line else (short, full)

    def _one_does_not_fit(self, demand: JobDemand) -> tuple[str, str]:
        packing = self._context.shared.packing
        scarce = self._context.scarce(demand.shape)
        if not scarce.shortages:
            return self._nothing_short(demand)
        short, full = self._what_is_full(demand.shape, scarce)
        if demand.job.is_best_effort:
            return short, f"{full}; its trainers request neither cpu nor memory, so pods that do come first"
        if is_by_steps(demand, self._context):
            return short, f"{full}; {MORE_LATER}" if has_next_step(demand, self._context) else full
        if packing.count[demand.index] >= demand.max_trainers:
            return short, f"{full}; more trainers would not fit even without other jobs"
        if scarce.is_left_soon:
            return (
                f"{short}; waits for terminating pods",
                f"{full}; terminating pods will free enough capacity, and edl waits for them",
            )
        kept = [self._kept(scarce.kept)] if scarce.kept else []
        return short, "; ".join((full, *kept, *self._holders(demand, scarce)))

    def _nothing_short(self, demand: JobDemand) -> tuple[str, str]:
        """Say why a job gets no more trainers although some node has capacity for one."""
        packing = self._context.shared.packing
        if not open_nodes(packing, demand.shape):
            none, shape = "no node accepts new trainers of it", demand.job.trainer
            rule = self._waiting.rejections.by_rule(shape)
            return f"{none}: {rule}" if rule else none, f"{none} ({self._waiting.rejections.of_all(shape)})"
        if not has_load_left(packing, demand.shape):
            return _same(f"--max-load-desired {packing.problem.limits.sharing.max_load_desired:g} is reached")
        return _same("a node has a slot for one more trainer, which the next plan can use")

    def _what_is_full(self, shape: int, scarce: Scarce) -> tuple[str, str]:
        if shape not in self._full:
            packing = self._context.shared.packing
            self._full[shape] = self._places.what_is_full(
                packing, shape, scarce.shortages, is_proved=scarce.is_proved
            )
        return self._full[shape]

    def _yields_to_serving(self, demand: JobDemand) -> tuple[str, str]:
        packing, problem = self._context.shared.packing, self._context.problem
        deleted = self._context.deleted(demand.index)
        yielded = [one.trainer.node for one in self._context.yielded(demand.index) if one.for_serving]
        yields = f"yields {count(sum(i in packing.for_serving for i in deleted) + len(yielded), 'trainer')}"
        nodes = sorted({*(problem.live_trainers[i].node for i in deleted), *yielded} - {-1})
        usable = sorted({*nodes, *open_nodes(packing, demand.shape)})
        where = f" on {self._places.where(nodes, usable)}" if nodes else ""
        if not any(self._context.served.due.values()):
            return f"{yields} to headroom", f"{yields}{where} ahead of serving pods to come: {self._learned()}"
        return f"{yields} to serving", f"{yields}{where} to {self._waiting.requests_of_serving()}"

    def _kept(self, places: int) -> str:
        """Say for how many serving pods the plan keeps capacity free, and by which setting."""
        waiting = sum(self._context.served.due.values()) + self._context.shared.in_grace_placed
        headroom = self._context.problem.limits.serving.headroom
        extra = f" (--serving-headroom {headroom})" if headroom and places > waiting else ""
        learned = f"; {self._learned()}" if self._context.shared.headroom and places > waiting else ""
        return f"capacity for {count(places, 'serving pod')} is kept free{extra}{learned}"

    def _learned(self) -> str:
        """The capacity that learned headroom keeps, and why."""
        return listed([headroom_line(kept) for kept in self._context.shared.headroom])

    def _holders(self, demand: JobDemand, scarce: Scarce) -> Sequence[str]:
        """Name the jobs with trainers above their minimum on the full nodes, and the price of one more trainer."""
        own = scarce.part_of.get(demand.index)
        others = len(scarce.holders) - (own is not None)
        if not others:
            return ["no other job holds more than its minimum there"]
        demands = self._context.problem.demands
        first, *more = islice((h for h in scarce.holders if h.demand != demand.index), NAMED_HOLDERS)
        held = f"{demands[first.demand].job.key} holds {_percent(first.part)} of it above its minimum"
        named = [f"{held} ({count(first.surplus, 'trainer')})"]
        named += [f"{demands[h.demand].job.key} {_percent(h.part)}" for h in more]
        if others > NAMED_HOLDERS:
            rest = scarce.part - (own or 0.0) - sum(h.part for h in (first, *more))
            named.append(f"{count(others - NAMED_HOLDERS, 'other job')} {_percent(rest)}")
        return [listed(named), self._cost(demand, scarce)]

    def _cost(self, demand: JobDemand, scarce: Scarce) -> str:
        """Say what one more trainer would cost the job that loses least by giving one up."""
        exchanges = [e for e in scarce.exchanges if e.donor != demand.index]
        if not exchanges:
            return "no single job's surplus would free capacity for one more trainer on any node"
        objective = self._context.shared.objective
        trade = objective.cheapest_trade(self._context.shared.packing, demand.index, exchanges)
        donor = self._context.problem.demands[trade.donor].job
        if trade.gain is None:
            cost = f"one more trainer would cost {donor.key} {trade.loss:.2g} of {trade.unit}"
            return f"{cost}{_verdict(trade)}"
        weights = (
            "" if donor.weight == demand.job.weight else f" (weights {donor.weight:g} and {demand.job.weight:g})"
        )
        cost = f"one more trainer would cost {donor.key} {_percent(trade.loss)} of its {trade.unit}"
        return f"{cost} and add {_percent(trade.gain)} here{weights}{_verdict(trade)}"


def _excluded(found: Finding, job: Job, base: str) -> Sentence:
    """Write the sentence of a job that gets no trainers for another reason than capacity.

    `base`: what Kueue lacks.
    """
    if found.cause is Cause.REFUSED and job.refusal is not None:
        if base and not job.refusal.details:
            whole = f"{job.refusal.message}; {base}"
            return Sentence(job.refusal.message if job.kueue and job.kueue.base else whole, whole)
        return Sentence(job.refusal.message, _with_answer(job.refusal))
    if found.cause is Cause.DELETING and job.orphans_pods:
        return Sentence("the job is being deleted and leaves its pods behind (--cascade=orphan)")
    known = {Cause.INVALID: job.problem, Cause.SUSPENDED: _suspended(job), **_EXCLUDED}
    return Sentence(known[found.cause])


def _with_answer(refusal: Refusal) -> str:
    """Say who rejects the pods of a job, with the answer of the API server; edl tries again after pauses."""
    if not refusal.details:
        return ""
    return f"{refusal.message}: {refusal.details}; edl asks again after pauses of up to five minutes"


def _same(line: str) -> tuple[str, str]:
    """Use one line both as the short line and as the account."""
    return line, line


def _verdict(trade: Trade) -> str:
    """Say why the plan does not transfer a trainer from one job to the other."""
    return {
        TradeVerdict.NOT_CHEAPER: "",
        TradeVerdict.LEAVES_LESS: f" and leave it with less ({trade.after:.2g} against {trade.taker_after:.2g})",
        TradeVerdict.DEAD_BAND: f"; edl deletes no trainer of a job that would be at most {DEAD_BAND:g} ahead then",
        TradeVerdict.TOO_LITTLE: "; that is too little to restart a running trainer",
        TradeVerdict.LOSS: "; all jobs together would be slower",
    }[trade.verdict]


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"
