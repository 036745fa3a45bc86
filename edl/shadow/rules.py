"""Judges pods by the rules between pods, volumes and devices, to compare that with kube-scheduler's answers.

Each such answer is judged on the cluster just before it, with the code that plans use. That takes a look at every pod
with a node, so there is a bound on the time for it; answers beyond it are counted and not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec
from edl.kube.translate.pods import read_pod
from edl.kube.translate.rules.facts import NO_FACTS, RuleFacts
from edl.kube.translate.rules.terms import PodRules, rules_of
from edl.kube.translate.rules.verdict import RuleKind, Verdict, only, verdict_on
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape, Resources
from edl.shadow.document import Predicate

SHARE = 0.1
"""The part of the time that judging may take; what is left unused counts for a minute."""
_MOST_SAVED_S = 6.0
_PREDICATES = {
    RuleKind.BETWEEN_PODS: Predicate.BETWEEN_PODS,
    RuleKind.VOLUMES: Predicate.VOLUMES,
    RuleKind.CLAIMS: Predicate.CLAIMS,
}


@dataclass(slots=True)
class _Known:
    """A pod on a node, with its rules."""

    pod: Pod
    rules: PodRules


class Ruling:
    """The verdict of the rules on one pod at one time; it is split by kinds of rules only on demand.

    Args:
        whole: by all its rules.
        of_kind: by the rules of one kind.
    """

    def __init__(self, whole: Verdict, of_kind: Callable[[RuleKind], Verdict]) -> None:
        self._whole, self._of_kind = whole, of_kind

    def obstacles(self, node: Node) -> list[Predicate]:
        """Return which kinds of rules keep the pod from a node."""
        if self._whole.allows(node):
            return []
        found = [_PREDICATES[kind] for kind in RuleKind if not self._of_kind(kind).allows(node)]
        return found or [Predicate.BETWEEN_PODS]

    def more_of(self, node: str) -> Resources:
        """Return what devices give a node of the resources that the pod requests by name."""
        return self._whole.more.get(node, Resources())


class RuleJudge:
    """The pods that have nodes, as rules read them.

    Args:
        monotonic_s: a clock that never runs backwards.
        cpu_s: CPU seconds of this process.
        facts: volumes, classes, attach limits, namespaces and devices as they are now.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        cpu_s: Callable[[], float],
        facts: Callable[[], RuleFacts] | None = None,
    ) -> None:
        self._monotonic_s, self._cpu_s = monotonic_s, cpu_s
        self.facts = facts or (lambda: NO_FACTS)
        self._known: dict[str, _Known] = {}
        self._shared: dict[PodRules, PodRules] = {}
        self._terms = 0  # pods with a node and rules about others
        self._saved_s, self._counted_s = _MOST_SAVED_S, monotonic_s()

    def clear(self) -> None:
        """Forget every pod."""
        self._known.clear()
        self._shared.clear()
        self._terms = 0

    def put(self, pod: PodObject, shape: PodShape) -> None:
        """Add a pod that is bound to a node."""
        uid = (pod.metadata or PodMetadata()).uid or ""
        self.drop(uid)
        self._known[uid] = known = self._read(pod, shape)
        self._terms += known.rules.has_terms

    def ends(self, uid: str) -> bool:
        """Return True if a pod is known to terminate."""
        return uid in self._known and self._known[uid].pod.terminating

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        if (known := self._known.pop(uid, None)) is not None:
            self._terms -= known.rules.has_terms

    def concerns(self, pod: PodObject, shape: PodShape) -> bool:
        """Return True if some rule may be about a pod."""
        if self._terms or not self._read(pod, shape).rules.is_plain:
            return True
        return any("/" in name for name in shape.request) and bool(self.facts().devices.classes)

    def judge(self, pod: PodObject, shape: PodShape, nodes: tuple[Node, ...]) -> Ruling | None:
        """Judge a pod as if it had no node.

        Args:
            pod: the pod.
            shape: its request and placement.
            nodes: every node.

        Returns:
            None if there was no time for it.
        """
        if not self._has_time():
            return None
        began_s = self._cpu_s()
        asked = self._read(pod, shape)
        waiting = replace(
            asked.pod,
            node="",
            nominated="",
            phase=PodPhase.PENDING,
            gated=False,
            terminating=False,
            blocked="",
            priority=0,
        )
        others = [one for uid, one in self._known.items() if uid != waiting.uid]
        rules = {id(one.pod): one.rules for one in others}
        snapshot = ClusterSnapshot(waiting.created_s, nodes=nodes, pods=tuple([one.pod for one in others]))
        facts = self.facts()

        def by(own: PodRules) -> Verdict:
            return verdict_on(waiting, snapshot, facts, lambda one: rules.get(id(one), own))

        found = Ruling(by(asked.rules), lambda kind: by(only(kind, asked.rules)))
        self._saved_s -= self._cpu_s() - began_s
        return found

    def _has_time(self) -> bool:
        now_s = self._monotonic_s()
        self._saved_s = min(_MOST_SAVED_S, self._saved_s + SHARE * (now_s - self._counted_s))
        self._counted_s = now_s
        return self._saved_s > 0

    def _read(self, pod: PodObject, shape: PodShape) -> _Known:
        spec = pod.spec or PodSpec()
        read = read_pod(pod, shape, spec.priority or 0, 0.0, Resources()).foreign
        rules = rules_of(pod, read.namespace)
        return _Known(read, self._shared.setdefault(rules, rules))
