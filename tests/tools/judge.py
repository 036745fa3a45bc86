"""Judges a changed plan or certificate without the verifier's code: which changes are harmful?

A change is harmful if the documents then claim something that is false: a plan that breaks a rule of `guard`, a pod
where it has no room, a value that the plan does not have, or a bound below what an integer program reaches under the
rules that the certificate states.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from edl.lifecycle.desired_state import as_planned
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU, PodShape
from edl.planner.eligibility import takes
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.speedup import worth_knots
from tests.tools.certified_clusters import Certified, Object

TOLERANCE = 1e-6
POLICY_OF = {"fulfilment": "maxmin", "speed": "utility", "goodput": "goodput"}
"""What trainers are worth by a certificate -> the policy that counts it."""

FloatArray = NDArray[np.float64]
Lines = list[tuple[float, float]]
FIXED = (Role.MASTER, Role.PSERVER)


class Judge:
    """Judges changes of the documents of one cluster."""

    def __init__(self, world: Certified) -> None:
        self.world = world
        self.jobs = {str(job.key): as_planned(job) for job in world.snapshot.jobs}
        self.nodes = {node.name: node for node in world.snapshot.nodes}
        self.waiting = {f"{p.namespace}/{p.name}": p for p in world.snapshot.pods if p.needs_capacity}
        self._optimum: dict[object, float] = {}

    def harms(self, plan: Object, certificate: Object) -> list[str]:
        """Every false claim of the documents; empty if the change is harmless."""
        for decision in plan["decisions"]:
            decision["victims"] = decision["victims"] or []  # null means none
        return [
            *self._plan_harms(plan, certificate),
            *self._places_harms(plan, certificate),
            *self._bound_harms(plan, certificate),
        ]

    def _plan_harms(self, plan: Object, certificate: Object) -> Iterator[str]:
        made, documents = self.world.made, {f"{d['namespace']}/{d['name']}": d for d in plan["decisions"]}
        if len(documents) != len(plan["decisions"]) or documents.keys() != self.jobs.keys():
            yield "not one decision for each job"
            return
        decisions = [self._decision(d, documents[str(d.job)], certificate) for d in made.decisions]
        serving = replace(made.serving, **{key: plan["serving"][key] for key in ("waiting", "placed")})
        snapshot = replace(self.world.snapshot, jobs=tuple(self.jobs.values()))
        changed = ScalePlan(tuple(decisions), replace(made.certificate, achieved=0.0, bound=1.0), serving=serving)
        yield from check(snapshot, changed)
        if plan["serving"]["placed"] != len(certificate["pods"]):
            yield "another number of serving pods is placed"
        for before in made.decisions:
            now = documents[str(before.job)]
            if (now["min"], now["max"]) != (before.min_trainers, before.max_trainers):
                yield "other bounds than the job declares"
        if any(plan["certificate"][key] != certificate["plan"].get(key) for key in ("achieved", "bound")):
            yield "plan and certificate state different values"

    @staticmethod
    def _decision(before: ScaleDecision, now: Object, certificate: Object) -> ScaleDecision:
        facts = certificate["jobs"].get(str(before.job), {})
        return replace(
            before,
            current=now["current"],
            target=now["target"],
            admitted=bool(now["admitted"]),
            victims=tuple(now["victims"]),
            nodes=tuple(sorted(now["nodes"].items())),
            moves=tuple(now["moves"] or ()),
            shrink_reason="because" if now["victims"] else "",
            fixed_nodes=tuple((role, node) for role in FIXED for node in facts.get(role.value, ())),
        )

    def _planned(self, plan: Object, certificate: Object) -> Iterator[tuple[str, PodShape, int]]:
        """Node, shape and number of every pod that is to start."""
        for decision in plan["decisions"]:
            key = f"{decision['namespace']}/{decision['name']}"
            if not decision["admitted"]:
                continue
            for node, count in decision["nodes"].items():
                yield node, self.jobs[key].trainer, count
            for fixed in self.jobs[key].fixed:
                for node in certificate["jobs"].get(key, {}).get(fixed.role.value, ()):
                    yield node, fixed.shape, 1
        for name, node in certificate["pods"].items():
            yield node, self.waiting[name].shape, 1

    def _places_harms(self, plan: Object, certificate: Object) -> Iterator[str]:
        """Pods without room, serving pods among them."""
        if any(name not in self.waiting for name in certificate["pods"]):
            yield "a pod is placed that does not wait"
            return
        used: dict[str, Counter[str]] = defaultdict(Counter)
        lent: Counter[str] = Counter()
        for pod in self.world.snapshot.pods:
            used[pod.node or pod.nominated].update(pod.shape.request.as_dict())
        for decision in plan["decisions"]:
            for pod in self.jobs[f"{decision['namespace']}/{decision['name']}"].pods:
                if decision["admitted"] and pod.is_live and pod.name not in decision["victims"]:
                    used[pod.node or pod.nominated].update(pod.shape.request.as_dict())
                    lent[pod.node or pod.nominated] += pod.lent_cpu_milli
        planned = list(self._planned(plan, certificate))
        serving = [(node, self.waiting[name].shape, 1) for name, node in certificate["pods"].items()]
        for node, shape, _ in planned:
            if node not in self.nodes or not takes(self.nodes[node], shape.placement):
                yield f"node {node} does not take a pod"
        yield from self._overcommitted(planned[: len(planned) - len(serving)], used, Counter())
        yield from self._overcommitted(planned, used, lent)

    def _overcommitted(
        self, planned: list[tuple[str, PodShape, int]], held: dict[str, Counter[str]], lent: Counter[str]
    ) -> Iterator[str]:
        """Nodes that get a pod of which too much is used; `lent` of their CPU does not count."""
        used = {node: +held[node] for node, _, _ in planned}
        asked: dict[str, set[str]] = defaultdict(set)
        for node, shape, count in planned:
            used[node].update({name: count * amount for name, amount in shape.request.amounts})
            asked[node].update(shape.request)
        for node in asked.keys() & self.nodes.keys():
            used[node][CPU] -= lent[node]
            if any(used[node][name] > self.nodes[node].allocatable[name] for name in asked[node]):
                yield f"node {node} is overcommitted"

    def _bound_harms(self, plan: Object, certificate: Object) -> Iterator[str]:
        targets = {f"{d['namespace']}/{d['name']}": d for d in plan["decisions"]}
        facts = certificate["jobs"]
        if {key for key, d in targets.items() if d["admitted"]} != facts.keys():
            yield "other jobs are admitted"
            return
        if (kind := certificate["worth"]) not in POLICY_OF:
            yield "nobody knows what trainers are worth"
            return
        achieved = self.value(plan, certificate)
        if not abs(achieved - plan["certificate"]["achieved"]) <= TOLERANCE:
            yield "the plan is worth something else"
        caps = {key: fact["cap"] for key, fact in facts.items()}
        lows = {key: self.jobs[key].bounds.min_trainers for key in facts}
        have = {key: targets[key]["target"] for key in facts}
        worths = (_worth(self.jobs[key], caps[key], n) for key, n in have.items())
        levels = sorted({worth for worth in worths if worth < 1})[:3] if kind == "fulfilment" else []
        promised = {key: fact["floor"] for key, fact in facts.items()}
        last = levels[-1] if levels else 0.0
        fair = {
            key: max(promised[key], min(n, lows[key] + ceil(last * max(0, caps[key] - lows[key]) - TOLERANCE)))
            for key, n in have.items()
        }
        stay = {key: frozenset(_trainers(self.jobs[key])) - {*targets[key]["victims"]} for key in facts}
        for name, floors, kept in (
            ("promised", promised, None),
            ("minimum", lows, None),
            ("repacked", fair, None),
            ("staying", fair, stay),
        ):
            stated = float(Fraction(int(certificate["proofs"][name]["bound"]), int(certificate["denominator"])))
            best = self.best(floors, caps, certificate, kept)
            if not stated >= best - TOLERANCE:
                yield f"proof {name} states {stated}, but {best} can be reached"
        if len(levels) != len(certificate["levels"] or ()):  # null means none
            yield "other levels"
            return
        for level, proof in zip(levels, certificate["levels"] or (), strict=True):
            bound, above = Fraction(proof["bound"]), dict(lows)
            for key, n in have.items():
                if caps[key] > lows[key]:
                    is_below = _worth(self.jobs[key], caps[key], n) < level - TOLERANCE
                    above[key] = n if is_below else lows[key] + floor(bound * (caps[key] - lows[key])) + 1
            if self.best(above, caps, certificate) > float("-inf"):
                yield f"level {level} can be above {bound}"

    def best(
        self,
        floors: dict[str, int],
        caps: dict[str, int],
        certificate: Object,
        stay: dict[str, frozenset[str]] | None = None,
    ) -> float:
        """The most that whole pods reach under the rules of the certificate, by an integer program.

        Trainers in `stay` keep their nodes. Without any plan it is minus infinity.
        """
        if any(n > self.jobs[key].bounds.max_trainers for key, n in floors.items()):
            return float("-inf")
        kept = (
            certificate["worth"],
            tuple(floors.items()),
            tuple(caps.items()),
            tuple(certificate["pods"]),
            tuple(certificate["jobs"]),
            tuple((stay or {}).items()),
            stay is None,
        )
        if kept not in self._optimum:
            worths = {key: self._lines(key, caps[key], certificate["worth"]) for key in floors}
            self._optimum[kept] = self._solve(floors, worths, list(certificate["pods"]), stay)
        return self._optimum[kept]

    def _solve(
        self,
        floors: dict[str, int],
        worths: dict[str, Lines],
        serving: list[str],
        stay: dict[str, frozenset[str]] | None,
    ) -> float:
        jobs = [self.jobs[key] for key in floors]
        if not jobs:
            return 0.0
        groups = self._groups(jobs, serving)
        names = sorted({name for shape, _, _ in groups for name in shape.request})
        nodes, rooms = list(self.nodes.values()), self._rooms(jobs, names, stay or {})
        pods, counts = len(groups) * len(nodes), len(jobs)
        free = [len(stay[str(job.key)]) if stay is not None else self._free_trainers(job) for job in jobs]
        rows, low, high = [], [], []
        for k, (_, fewest, most) in enumerate(groups):
            row = np.zeros(pods + 2 * counts)
            row[k * len(nodes) : (k + 1) * len(nodes)] = 1
            if k < counts:
                row[pods + k] = -1
            rows.append(row)
            low.append(-float(free[k]) if k < counts else fewest)
            high.append(np.inf if k < counts else most)
        for v in range(len(nodes)):
            for r, name in enumerate(names):
                row = np.zeros(pods + 2 * counts)
                for k, (shape, _, _) in enumerate(groups):
                    row[k * len(nodes) + v] = shape.request[name] / max(1, rooms[v][r])
                rows.append(row)
                low.append(-np.inf)
                high.append(1.0 if rooms[v][r] > 0 else 0.0)
        for k, job in enumerate(jobs):  # the worth of each job is below each of its lines
            rows += [_below(line, pods + k, pods + counts + k, pods + 2 * counts) for line in worths[str(job.key)]]
            low += [-np.inf] * len(worths[str(job.key)])
            high += [start for _, start in worths[str(job.key)]]
        most_pods = [
            1_000 if takes(node, shape.placement) and _fits(shape, rooms[v], names) else 0
            for shape, _, _ in groups
            for v, node in enumerate(nodes)
        ]
        result = milp(
            np.concatenate([np.zeros(pods + counts), -np.ones(counts)]),
            constraints=LinearConstraint(np.array(rows).reshape(-1, pods + 2 * counts), low, high),
            integrality=np.concatenate([np.ones(pods + counts), np.zeros(counts)]),
            bounds=Bounds(
                np.concatenate([np.zeros(pods), [floors[str(job.key)] for job in jobs], np.full(counts, -np.inf)]),
                np.concatenate([most_pods, [job.bounds.max_trainers for job in jobs], np.full(counts, np.inf)]),
            ),
        )
        if result.x is None:
            return float("-inf")
        found = zip(jobs, result.x[pods : pods + counts], strict=True)
        return sum(_lowest(worths[str(job.key)], round(n)) for job, n in found)

    def _groups(self, jobs: list[Job], serving: list[str]) -> list[tuple[PodShape, int, int]]:
        """(shape, fewest and most pods) of what a plan places: first the trainers of each job."""
        groups = [(job.trainer, 0, job.bounds.max_trainers) for job in jobs]
        for job in jobs:
            for fixed in job.fixed:
                missing = fixed.count - sum(p.role is fixed.role and p.is_live for p in job.pods)
                if missing > 0:
                    groups.append((fixed.shape, missing, missing))
        if not any(pod.lent_cpu_milli for job in self.jobs.values() for pod in job.live_trainers):
            groups += [(self.waiting[name].shape, 1, 1) for name in serving]
        return groups

    def value(self, plan: Object, certificate: Object) -> float:
        """What a plan is worth by the caps of a certificate."""
        targets = {f"{d['namespace']}/{d['name']}": d["target"] for d in plan["decisions"]}
        lines = (
            (key, self._lines(key, fact["cap"], certificate["worth"])) for key, fact in certificate["jobs"].items()
        )
        return sum(_lowest(each, targets[key]) for key, each in lines)

    def _lines(self, key: str, cap: int, kind: str) -> Lines:
        """(slope, value at 0) of lines of which the lowest is the worth of a job's trainers."""
        job = self.jobs[key]
        low, high = job.bounds
        if kind == "fulfilment" or cap <= low:
            nothing = 1.0 if kind == "fulfilment" else 0.0
            return [(1 / (cap - low), -low / (cap - low))] if cap > low else [(0.0, nothing)]
        knots = worth_knots(policy_named(POLICY_OF[kind]).adapt(job), low, cap, high)
        slopes = [((n - m) / (b - a), a, m) for (a, m), (b, n) in pairwise(knots)]
        return [(slope, at - slope * a) for slope, a, at in slopes] + [(0.0, knots[-1][1])]

    def _rooms(self, jobs: list[Job], names: list[str], stay: dict[str, frozenset[str]]) -> list[list[int]]:
        """(nodes, resources) what the pods of a plan may use beside foreign pods, masters, pservers and who stays."""
        own = [pod for job in self.jobs.values() for pod in job.pods if pod.is_live]
        fixed = [
            pod
            for job in jobs
            for pod in job.pods
            if pod.is_live and (pod.role is not Role.TRAINER or pod.name in stay.get(str(job.key), ()))
        ]
        return [
            [
                max(
                    node.allocatable[name] - _used(self.world.snapshot.pods, node.name, name),
                    _used(own, node.name, name),
                )
                - _used(fixed, node.name, name)
                for name in names
            ]
            for node in self.nodes.values()
        ]

    def _free_trainers(self, job: Job) -> int:
        """Live trainers that need no slot of new ones."""
        return sum(
            pod.shape.request != job.trainer.request
            or (pod.node or pod.nominated) not in self.nodes
            or not takes(self.nodes[pod.node or pod.nominated], job.trainer.placement)
            for pod in job.live_trainers
        )


def _lowest(lines: Lines, count: int) -> float:
    return min(slope * count + start for slope, start in lines)


def _below(line: tuple[float, float], count: int, worth: int, width: int) -> FloatArray:
    """The row of a program in which a worth is at most a line over a count."""
    row = np.zeros(width)
    row[count], row[worth] = -line[0], 1.0
    return row


def _trainers(job: Job) -> list[str]:
    return [pod.name for pod in job.live_trainers]


def _worth(job: Job, cap: int, count: int) -> float:
    low = job.bounds.min_trainers
    return (count - low) / (cap - low) if cap > low else 1.0


def _used(pods: Any, node: str, name: str) -> int:
    chosen: list[Pod] = [pod for pod in pods if (pod.node or pod.nominated) == node and not pod.is_finished]
    return sum(pod.shape.request[name] for pod in chosen)


def _fits(shape: PodShape, room: list[int], names: list[str]) -> bool:
    return all(shape.request[name] <= have for name, have in zip(names, room, strict=True) if shape.request[name])
