"""One job's part of a plan for people and for scripts: the text and the JSON of `edl explain`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.text import Text

from edl.controller.planning import study_snapshot
from edl.errors import ConfigError
from edl.explain.job_report import Confirmed, JobReport, OneMore, report_on_job
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Limits
from edl.model.times import text_of
from edl.model.units import count, plain

NODES_TOLD = 20
HOLDERS_TOLD = 5
NAMES_OFFERED = 5


def explain_job(snapshot: ClusterSnapshot, name: str, namespace: str, policy: str, limits: Limits) -> JobReport:
    """Plan the cluster and account for one job of it.

    Args:
        snapshot: the cluster.
        name: of the job, or NAMESPACE/NAME.
        namespace: where it is; empty looks everywhere.
        policy: empty for the default.
        limits: those of the controller.

    Raises:
        ConfigError: there is no such job, or several.
        PlanError: no plan could be made.
    """
    key = find_job(snapshot, name, namespace)
    return report_on_job(study_snapshot(snapshot, policy, limits), key, limits.deadline_s)


def find_job(snapshot: ClusterSnapshot, name: str, namespace: str) -> JobKey:
    """The job that a person means.

    Raises:
        ConfigError: there is none (names that are near are offered), or several.
    """
    prefix, slash, rest = name.rpartition("/")
    if slash and namespace and prefix != namespace:
        raise ConfigError(f"{name} names another namespace than -n {namespace}; give one of the two")
    wanted, home = rest, namespace or prefix
    keys = [job.key for job in snapshot.jobs]
    found = [key for key in keys if key.name == wanted and key.namespace == (home or key.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        homes = ", ".join(key.namespace for key in found)
        raise ConfigError(f"there are {len(found)} TrainingJobs {wanted}, in {homes}; say which by -n NAMESPACE")
    raise ConfigError(f"there is no TrainingJob {f'{home}/' if home else ''}{wanted}; {_offer(keys, wanted)}")


def _offer(keys: list[JobKey], wanted: str) -> str:
    if not keys:
        return "the cluster has none at all"
    near = get_close_matches(wanted, sorted({key.name for key in keys}), n=NAMES_OFFERED)
    offered = [str(key) for name in near for key in keys if key.name == name][:NAMES_OFFERED]
    if offered:
        return f"is it {' or '.join(offered)}?"
    shown = ", ".join(str(key) for key in keys[:NAMES_OFFERED])
    return f"there are {shown}{f' and {len(keys) - NAMES_OFFERED} more' if len(keys) > NAMES_OFFERED else ''}"


def job_report_json(report: JobReport, observed_at_s: float) -> str:
    """The account for scripts; no time where the cluster was seen at 0, as one is whose files hold none."""
    decision, one = report.decision, report.one_more
    body: dict[str, Any] = {
        "namespace": decision.job.namespace,
        "name": decision.job.name,
        "observedAt": text_of(observed_at_s) if observed_at_s else None,
        "policy": report.policy,
        "objective": report.objective,
        "current": decision.current,
        "target": decision.target,
        "min": decision.min_trainers,
        "max": decision.max_trainers,
        "admitted": decision.admitted,
        "reason": decision.reason.value,
        "message": decision.message,
        "victims": list(decision.victims),
        "fairShare": report.fair_share,
        "fulfilment": report.fulfilment,
        "nodes": [
            {"node": s.node, "pool": s.pool, "stay": s.stay, "come": s.come, "go": s.go} for s in report.standing
        ],
        "full": [
            {"resource": f.resource, "where": f.place, "nodes": f.nodes, "free": f.most_free, "asked": f.asked}
            for f in report.full
        ],
        "holders": [
            {"namespace": h.job.namespace, "name": h.job.name, "trainers": h.trainers, "part": h.part}
            for h in report.held
        ],
        "oneMore": {"price": one.price, "result": one.verdict.value, "cost": one.cost} if one else None,
        "remedies": list(report.remedies),
    }
    return json.dumps(body, indent=2, allow_nan=False)


def print_job_report(report: JobReport, snapshot: ClusterSnapshot, console: Console) -> None:
    """The account for people, like a short report."""
    for line in _lines(report, snapshot):
        console.print(Text(line), soft_wrap=True)


def _lines(report: JobReport, snapshot: ClusterSnapshot) -> Iterator[str]:
    decision = report.decision
    state = f"{decision.current} now, {decision.target} planned" if decision.admitted else "does not run"
    bounds = f"min {decision.min_trainers}, max {decision.max_trainers}"
    yield f"{decision.job}: {state} ({bounds}), {decision.reason.value}"
    yield f"  {decision.message}"
    said = next((j.status.explanation for j in snapshot.jobs if j.key == decision.job and j.status), "")
    if said and said != decision.message:
        yield f"  The controller said last: {said}"
    if report.standing:
        yield from ("", "What it has")
        yield from _standing(report)
    if report.full or report.held:
        yield from ("", "Why not more")
        yield from _scarcity(report)
    if report.remedies:
        yield from (
            "",
            "What would have to happen" if len(report.remedies) == 1 else "What would help, each by itself",
        )
        yield from (f"  - {remedy}" for remedy in report.remedies)
    yield ""
    at_s = snapshot.observed_at_s
    when = f", as of {text_of(at_s)}" if at_s else "; the input holds no time, and --now sets one"
    yield f"Policy {report.policy}{when}; nothing was changed."


def _standing(report: JobReport) -> Iterator[str]:
    if report.fair_share is not None and report.fulfilment is not None:
        share = "at least" if report.objective == "utility" else "fair share"
        yield f"  {share} {report.fair_share:.4g} trainers, fulfilment {report.fulfilment:.2g}"
    for one in report.standing[:NODES_TOLD]:
        parts = [f"{n} {word}" for n, word in ((one.stay, "stay"), (one.come, "to come"), (one.go, "to go")) if n]
        yield f"  {one.node}{f' ({one.pool})' if one.pool else ''}: {', '.join(parts)}"
    if (more := len(report.standing) - NODES_TOLD) > 0:
        yield f"  and {count(more, 'more node')} (-o json names them)"


def _scarcity(report: JobReport) -> Iterator[str]:
    for full in report.full:
        yield (
            f"  {plain(full.resource)} is full on {full.place}: at most {full.most_free} free,"
            f" a trainer asks for {full.asked}"
        )
    for held in report.held[:HOLDERS_TOLD]:
        trainers = count(held.trainers, "trainer")
        yield f"  {held.job} holds {100 * held.part:.2g} % of it above its minimum ({trainers})"
    if rest := report.held[HOLDERS_TOLD:]:
        yield f"  {count(len(rest), 'other job')} {100 * sum(h.part for h in rest):.2g} %"
    if report.one_more is not None:
        yield f"  {_confirmed(report.one_more, report.objective)}"


def _confirmed(one: Confirmed, unit: str) -> str:
    price = f"a price of one more place for its trainer is {one.price:.2g} of {unit}"
    shown = {
        OneMore.COSTS: f"all jobs together would have {one.cost:.2g} of {unit} less",
        OneMore.FREE: "in fractions of trainers it would cost nothing, but whole ones do not fit without a death",
        OneMore.BELOW_SHARES: "another job would fall below its fair share",
        OneMore.IMPOSSIBLE: "it does not fit even with every other job at its minimum",
    }
    return f"{price}; solved again with one more trainer for it: {shown[one.verdict]}"
