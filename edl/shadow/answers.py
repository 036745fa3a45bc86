"""Compares each answer of kube-scheduler with what edl would have said of the cluster just before.

kube-scheduler binds a pod, or says why no node takes it. Bindings and deletions reach a watcher a little later than
the scheduler's own memory, so an answer that edl does not understand at once is judged again 2 s later. If edl agrees
then, what was on its way explains it (`in_flight`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from edl.kube.translate.objects import HasMetadata, NodeObject, PodConditionObject, PodMetadata, PodObject, PodSpec
from edl.model.resources import PodShape
from edl.model.times import text_of
from edl.printable import one_line
from edl.shadow.book import Book, shape_of_pod
from edl.shadow.document import JUDGED, Agreement, Disagreement, Predicate, PredicateRow
from edl.shadow.rules import RuleJudge, Ruling
from edl.shadow.scheduler_messages import predicates_of

SETTLES_S = 2.0
MOST_DISAGREEMENTS = 500
_LONGEST_MESSAGE = 300
_DEFAULT = {None, "", "default-scheduler"}


@dataclass(slots=True)
class _Doubt:
    """An answer of kube-scheduler that contradicts edl's own; it is judged again at `due_s`, before it counts."""

    due_s: float
    pod: PodObject
    shape: PodShape
    node: str  # of a bound pod; empty for a refused one
    named: frozenset[Predicate]  # what the refusal names
    record: Disagreement

    @property
    def uid(self) -> str:
        """UID of the pod."""
        return _metadata(self.pod).uid or ""


@dataclass(slots=True)
class Answers:
    """Counts in how many answers kube-scheduler and edl agree; `agreement` goes into the report.

    Attributes:
        now_s: seconds since the epoch.
        monotonic_s: a clock that never runs backwards.
        agreement: the counts so far.
        on_end: called with the UID of each pod that waits no more, and whether it is bound; else it is gone.
    """

    now_s: Callable[[], float]
    monotonic_s: Callable[[], float]
    agreement: Agreement = field(default_factory=Agreement)
    on_end: Callable[[str, bool], None] = lambda _uid, _is_bound: None
    cpu_s: Callable[[], float] = time.process_time
    book: Book = field(init=False)
    rules: RuleJudge = field(init=False)
    _rows: dict[Predicate, PredicateRow] = field(default_factory=dict)
    _doubts: list[_Doubt] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Continue the counts that an earlier run has left."""
        self.rules = RuleJudge(self.monotonic_s, self.cpu_s)
        self.book = Book(self.rules)
        self._rows = {row.predicate: row for row in self.agreement.predicates}
        for predicate in Predicate:
            if predicate not in self._rows:
                self._rows[predicate] = PredicateRow(predicate=predicate, judged=predicate in JUDGED)
            self._rows[predicate].judged = predicate in JUDGED
        self.agreement.predicates = [self._rows[predicate] for predicate in Predicate]

    def note(self, before: HasMetadata | None, after: HasMetadata | None) -> None:
        """Handle one event of the watch of pods; events must come in order."""
        now_s = self.monotonic_s()
        self.settle()
        if isinstance(after or before, NodeObject):
            self.book.note_node(_as_node(before), _as_node(after), now_s)
        elif isinstance(after, PodObject):
            old = before if isinstance(before, PodObject) else None
            if (old is None or not _node_of(old)) and _node_of(after):
                self._bound(old, after)
            elif not _node_of(after) and _refusal(after) and _refusal(after) != (_refusal(old) if old else ""):
                self._refused(after)
            self.book.note_pod(after, now_s)
        elif isinstance(before, PodObject):
            self.book.note_pod(before, now_s, is_gone=True)
            self.on_end(_metadata(before).uid or "", False)

    def settle(self, *, all_of_them: bool = False) -> None:
        """Judge contradictory answers again that are old enough, or all of them."""
        now_s = self.monotonic_s()
        due = [doubt for doubt in self._doubts if all_of_them or doubt.due_s <= now_s]
        if not due:
            return
        self._doubts = [doubt for doubt in self._doubts if not (all_of_them or doubt.due_s <= now_s)]
        for doubt in due:
            self._judge_again(doubt)

    def finish(self) -> Agreement:
        """The counts, with the share of the answers that both agree on."""
        made = self.agreement.model_copy(deep=True)
        answers = made.bound + made.refused
        made.share = (made.bound_agreed + made.refused_agreed) / answers if answers else None
        return made

    def _bound(self, before: PodObject | None, pod: PodObject) -> None:
        uid, spec = _metadata(pod).uid or "", pod.spec or PodSpec()
        self.on_end(uid, True)
        self._agree_late(uid)
        shape = shape_of_pod(pod)
        if before is None or shape is None or not self._is_compared(pod):
            return  # a pod that comes with a node was not scheduled
        node = spec.node_name or ""
        is_judged, ruling = self._ruling(pod, shape)
        if not is_judged:
            return
        obstacles = self.book.obstacles(node, shape, ruling)
        if not obstacles:
            self._agree_bound()
            return
        said = f"edl would not have allowed it: {', '.join(obstacles)} of the node"
        record = self._record(pod, node, "bound it to the node", said, list(obstacles))
        self._doubts.append(_Doubt(self._due_s(), pod, shape, node, frozenset(), record))

    def _refused(self, pod: PodObject) -> None:
        shape = shape_of_pod(pod)
        if shape is None or not self._is_compared(pod):
            return
        message = _refusal(pod)
        named = frozenset(predicates_of(message))
        is_judged, ruling = self._ruling(pod, shape)
        if not is_judged:
            return
        node = self.book.free_node(shape, ruling)
        if not node:
            self._agree_refused(named)
            return
        record = self._record(pod, node, message, "it fits on this node", sorted(named))
        self._doubts.append(_Doubt(self._due_s(), pod, shape, "", named, record))

    def _ruling(self, pod: PodObject, shape: PodShape) -> tuple[bool, Ruling | None]:
        """Judge a pod by the rules between pods: False if time ran out, None if no rule concerns the pod."""
        if not self.rules.concerns(pod, shape):
            return True, None
        ruling = self.rules.judge(pod, shape, self.book.nodes())
        self.agreement.no_time += ruling is None
        return ruling is not None, ruling

    def _agree_late(self, uid: str) -> None:
        """Count the doubted refusals of a pod that is bound by now: kube-scheduler has seen the capacity, too."""
        late = [doubt for doubt in self._doubts if doubt.uid == uid and not doubt.node]
        self._doubts = [doubt for doubt in self._doubts if doubt not in late]
        for doubt in late:
            self.agreement.in_flight += 1
            self._agree_refused(doubt.named)

    def _judge_again(self, doubt: _Doubt) -> None:
        is_judged, ruling = self._ruling(doubt.pod, doubt.shape)
        if not is_judged:
            return
        if doubt.node:
            if not (obstacles := self.book.obstacles(doubt.node, doubt.shape, ruling, without=doubt.uid)):
                self.agreement.in_flight += 1
                self._agree_bound()
                return
            self.agreement.bound += 1
            for predicate in JUDGED:
                self._rows[predicate].bound_agreed += predicate not in obstacles
            for predicate in obstacles:
                self._rows[predicate].bound_disagreed += 1
        else:
            if not self.book.free_node(doubt.shape, ruling):
                self.agreement.in_flight += 1
                self._agree_refused(doubt.named)
                return
            self.agreement.refused += 1
            for predicate in doubt.named:
                self._rows[predicate].refused_disagreed += 1
        if len(self.agreement.disagreements) < MOST_DISAGREEMENTS:
            self.agreement.disagreements.append(doubt.record)
        else:
            self.agreement.left_off += 1

    def _agree_bound(self) -> None:
        self.agreement.bound += 1
        self.agreement.bound_agreed += 1
        for predicate in JUDGED:
            self._rows[predicate].bound_agreed += 1

    def _agree_refused(self, named: frozenset[Predicate]) -> None:
        self.agreement.refused += 1
        self.agreement.refused_agreed += 1
        for predicate in named:
            self._rows[predicate].refused_agreed += 1

    def _is_compared(self, pod: PodObject) -> bool:
        """Count answers that cannot be compared: pods of DaemonSets and of other schedulers. False for these."""
        if any(owner.kind == "DaemonSet" for owner in _metadata(pod).owner_references or ()):
            self.agreement.daemon_pods += 1
            return False
        if (pod.spec or PodSpec()).scheduler_name not in _DEFAULT:
            self.agreement.other_schedulers += 1
            return False
        return True

    def _due_s(self) -> float:
        return self.monotonic_s() + SETTLES_S

    def _record(
        self, pod: PodObject, node: str, scheduler: str, edl: str, predicates: list[Predicate]
    ) -> Disagreement:
        metadata = _metadata(pod)
        since_s = self.monotonic_s() - self.book.freed_s
        return Disagreement(
            at=text_of(self.now_s()),
            pod=f"{metadata.namespace}/{metadata.name}",
            node=node,
            scheduler=one_line(scheduler, _LONGEST_MESSAGE),
            edl=edl,
            predicates=predicates,
            since_change_s=round(min(since_s, 1e9), 3),
        )


def _metadata(pod: PodObject) -> PodMetadata:
    return pod.metadata or PodMetadata()


def _node_of(pod: PodObject) -> str:
    return (pod.spec.node_name if pod.spec else None) or ""


def _as_node(source: HasMetadata | None) -> NodeObject | None:
    return source if isinstance(source, NodeObject) else None


def _refusal(pod: PodObject) -> str:
    """Read kube-scheduler's message about a pod for which it found no node; empty if there is none."""
    conditions: list[PodConditionObject] = (pod.status.conditions if pod.status else None) or []
    found = next((c for c in conditions if c.type == "PodScheduled"), None)
    if found is None or found.status != "False" or found.reason != "Unschedulable":
        return ""
    return found.message or "Unschedulable"
