"""The report on one job as text and as JSON: the output of `edl explain`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.text import Text

from edl.errors import ConfigError
from edl.explain.job_report import EPSILON, Confirmed, JobReport, OneMore
from edl.explain.node_asks import asks_dict
from edl.explain.places import state_of
from edl.explain.speeds.lines import speed_json, speed_lines
from edl.explain.tiers import of_trainers, overcommit_json, qos_of
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, WorkloadKind
from edl.model.quantity import format_quantity
from edl.model.resources import RULE_PREFIX
from edl.model.status import POD_CANNOT_START, Condition, JobPhase, Reason
from edl.model.times import text_of
from edl.model.units import amount, count, listed, plain, rank_of
from edl.printable import one_line

NODES_LISTED = 20
HOLDERS_LISTED = 5
NAMES_OFFERED = 5


def find_job(snapshot: ClusterSnapshot, name: str, namespace: str) -> JobKey:
    """The job that a person means.

    Raises:
        ConfigError: no job has that name (similar names are offered), or several have it.
    """
    prefix, slash, rest = _namespace_and_name(name)
    if slash and namespace and prefix != namespace:
        raise ConfigError(f"{name} and -n {namespace} name different namespaces; give only one of them")
    wanted, home = rest, namespace or prefix
    keys = [job.key for job in snapshot.jobs]
    found = [key for key in keys if key.name == wanted and key.namespace == (home or key.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        homes = ", ".join(key.namespace for key in found)
        raise ConfigError(f"{len(found)} jobs are named {wanted}, in {homes}; choose one with -n NAMESPACE")
    kind, lacks = (
        ("", ' or has no annotation paddlepaddle.org/elastic: "true"') if "/" in wanted else ("TrainingJob ", "")
    )
    raise ConfigError(f"{kind}{f'{home}/' if home else ''}{wanted} does not exist{lacks}; {_offer(keys, wanted)}")


def _namespace_and_name(name: str) -> tuple[str, str, str]:
    """Split the argument of the command into namespace, slash and name.

    The first two are empty if only a name is given.
    """
    before, slash, rest = name.rpartition("/")
    namespace, second_slash, kind = before.rpartition("/")
    return (namespace, second_slash, f"{kind}/{rest}") if kind in set(WorkloadKind) else (before, slash, rest)


def _offer(keys: list[JobKey], wanted: str) -> str:
    if not keys:
        return "the cluster has no TrainingJob"
    same = sorted({key.name for key in keys if key.object_name == wanted.rpartition("/")[2]})
    near = same or get_close_matches(wanted, sorted({key.name for key in keys}), n=NAMES_OFFERED)
    offered = [str(key) for name in near for key in keys if key.name == name][:NAMES_OFFERED]
    if offered:
        return f"did you mean {' or '.join(offered)}?"
    shown = ", ".join(str(key) for key in keys[:NAMES_OFFERED])
    return f"the cluster has {shown}{f' and {len(keys) - NAMES_OFFERED} more' if len(keys) > NAMES_OFFERED else ''}"


def job_report_json(report: JobReport, snapshot: ClusterSnapshot) -> str:
    """The report for scripts; `observedAt` is null if the input has no time at all."""
    observed_at_s = snapshot.observed_at_s
    decision, one = report.decision, report.one_more
    trouble = _trouble(_job_of(report, snapshot))
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
        "account": decision.account,
        "degraded": {"reason": trouble.reason, "message": trouble.message} if trouble else None,
        "qosClass": qos_of(_job_of(report, snapshot)),
        "admission": _admission_json(_job_of(report, snapshot)),
        "overcommit": overcommit_json(snapshot, [one.node for one in report.by_node]),
        "lendingPrice": _lending_price(_job_of(report, snapshot)),
        "victims": list(decision.victims),
        "asks": asks_dict(decision.asks),
        "fairShare": report.fair_share,
        "fulfilment": report.fulfilment,
        "nodes": [
            {"node": s.node, "pool": s.pool, "stay": s.stay, "come": s.come, "go": s.go} for s in report.by_node
        ],
        "full": [
            {
                "resource": f.resource,
                "where": f.place,
                "nodes": f.nodes,
                "free": f.most_free,
                "asked": f.requested,
                "proved": f.is_proved,
            }
            for f in report.full
        ],
        "holders": [
            {"namespace": h.job.namespace, "name": h.job.name, "trainers": h.trainers, "part": h.part}
            for h in report.held
        ],
        "speeds": speed_json(report.speeds),
        "oneMore": {"price": one.price, "result": one.verdict.value, "cost": one.cost} if one else None,
        "avoided": [
            {"node": node.name, "until": text_of(node.until_s), "jobs": [str(key) for key in node.jobs]}
            for node in report.avoided
        ],
        "remedies": list(_remedies(report, trouble)),
    }
    return json.dumps(body, indent=2, allow_nan=False)


def print_job_report(report: JobReport, snapshot: ClusterSnapshot, console: Console) -> None:
    """The report for people."""
    for line in _lines(report, snapshot):
        console.print(Text(one_line(line)), soft_wrap=True)


def _changed_by_admission(job: Job | None) -> tuple[tuple[str, int, int], ...]:
    """(resource, what a trainer requests by the spec, what it requests) where both differ, the usual ones first."""
    if job is None or job.declared is None:
        return ()
    asked, real = job.declared, job.trainer.request
    names = sorted({*asked, *real}, key=rank_of)
    return tuple((name, asked[name], real[name]) for name in names if asked[name] != real[name])


def _admission_json(job: Job | None) -> dict[str, dict[str, str]] | None:
    """The requests of a trainer after admission plugins changed them; None if none did, or none is known to have."""
    changed = _changed_by_admission(job)
    if not changed:
        return None
    return {
        "spec": {name: format_quantity(asked, name) for name, asked, _ in changed},
        "pods": {name: format_quantity(real, name) for name, _, real in changed},
    }


def _admission(job: Job | None) -> Iterator[str]:
    changed = _changed_by_admission(job)
    if changed:
        real = listed([amount(name, n) for name, _, n in changed])
        asked = listed([amount(name, n) for name, n, _ in changed])
        why = "admission changes it (a LimitRange, a webhook or a policy)"
        yield f"  Each trainer requests {real} where its spec says {asked}: {why}"


def _lending_price(job: Job | None) -> float | None:
    """The measured training speed that the job loses for each core that it lends; None if not measured."""
    return job.status.measured.lending_price if job is not None and job.status is not None else None


def _lines(report: JobReport, snapshot: ClusterSnapshot) -> Iterator[str]:
    decision = report.decision
    job = _job_of(report, snapshot)
    state = f"{decision.current} now, {decision.target} planned" if decision.admitted else "does not run"
    if not decision.admitted and decision.target:
        state = f"{decision.current} now, left as they are"
    bounds = f"min {decision.min_trainers}, max {decision.max_trainers}"
    ended = _end_of(job) if job is not None else ""
    trouble = _trouble(job)
    hides = trouble is not None and _hides_capacity(report, trouble)
    reason = trouble.reason if trouble is not None and hides else decision.reason.value
    yield f"{decision.job}: {ended or f'{state} ({bounds}), {reason}'}"
    if hides:
        yield from _problem(job, trouble)
    yield f"  {decision.account}"
    if report.not_lending:
        yield f"  Lends no CPU: {report.not_lending}"
    if (price := _lending_price(job)) is not None:
        yield f"  Price of lending: it loses the speed of {price:g} cores for each core that its slow trainers lend"
    if not hides:
        yield from _problem(job, trouble)
    yield from _admission(job)
    yield from _avoided(report)
    stored = job.status.explanation if job is not None and job.status else ""
    if stored and stored != decision.message:
        yield f"  Stored in its status: {stored}"
    if report.by_node:
        yield from ("", "Trainers")
        yield from _node_lines(report)
        yield from of_trainers(job, snapshot, [one.node for one in report.by_node]) if job is not None else ()
    if report.speeds is not None:
        yield ""
        yield from speed_lines(report.speeds, decision)
    if report.full or report.held:
        yield from ("", "Why not more")
        yield from _scarcity(report)
    remedies = _remedies(report, trouble)
    if remedies:
        yield from ("", "What would help" if len(remedies) == 1 else "What would help, each on its own")
        yield from (f"  - {remedy}" for remedy in remedies)
    yield ""
    at_s = snapshot.observed_at_s
    when = f", as of {text_of(at_s)}" if at_s else "; the input has no time (set one with --now)"
    yield f"Policy {report.policy}{when}; nothing was changed."


def _end_of(job: Job) -> str:
    """Return the phase and the reason with which a job has ended, from its status; empty if it has not ended."""
    if job.status is None or job.status.phase not in {JobPhase.SUCCEEDED, JobPhase.FAILED}:
        return ""
    return f"{job.status.phase.value}, {job.status.reason}"


def _job_of(report: JobReport, snapshot: ClusterSnapshot) -> Job | None:
    return next((job for job in snapshot.jobs if job.key == report.decision.job), None)


def _trouble(job: Job | None) -> Condition | None:
    """The condition Degraded of a job if it is True: what keeps the job from its full count besides capacity."""
    found = job.status.condition("Degraded") if job is not None and job.status is not None else None
    return found if found is not None and found.status == "True" else None


def _hides_capacity(report: JobReport, trouble: Condition) -> bool:
    """Return True if the job's pods cannot start, so that neither a higher maximum nor more capacity helps."""
    return trouble.reason == POD_CANNOT_START and report.decision.reason in {
        Reason.AT_MAX,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.PODS_NOT_STARTED,
    }


def _remedies(report: JobReport, trouble: Condition | None) -> tuple[str, ...]:
    """The remedies to print: none for a job that has all its trainers planned while these do not start or work."""
    if trouble is None:
        return report.remedies
    is_useless = report.decision.reason is Reason.AT_MAX or _hides_capacity(report, trouble)
    return () if is_useless else report.remedies


def _problem(job: Job | None, trouble: Condition | None) -> Iterator[str]:
    """Describe the cause in the status that keeps a job from its full count, and the pods that cannot start."""
    if trouble is not None:
        yield f"  Degraded, {trouble.reason}: {trouble.message}"
    yield from _stuck(job) if job is not None else ()


def _stuck(job: Job) -> Iterator[str]:
    """Describe the pods that cannot start, and why: more capacity would not help them."""
    blocked = [pod for pod in job.pods if pod.cannot_start]
    if not blocked:
        return
    ready = sum(pod.ready for pod in job.live_trainers)
    yield f"  {ready} of {count(len(job.live_trainers), 'trainer')} ready; {count(len(blocked), 'pod')} cannot start:"
    names: dict[str, list[str]] = defaultdict(list)
    for pod in blocked:
        names[pod.container_message].append(pod.name)
    for message, those in list(names.items())[:NAMES_OFFERED]:
        rest = f" and {count(more, 'more pod')}" if (more := len(those) - NAMES_OFFERED) > 0 else ""
        yield f"    {', '.join(those[:NAMES_OFFERED])}{rest}: {message}"
    if (more := len(names) - NAMES_OFFERED) > 0:
        yield f"    and pods with {count(more, 'other message')}"


def _avoided(report: JobReport) -> Iterator[str]:
    """The nodes that its new trainers keep away from."""
    for node in report.avoided:
        jobs = listed([str(key) for key in node.jobs[:NAMES_OFFERED]])
        more = f" and {count(len(node.jobs) - NAMES_OFFERED, 'other job')}" if node.jobs[NAMES_OFFERED:] else ""
        until = text_of(node.until_s)
        yield f"  Avoids node {node.name} until {until}: trainers of {jobs}{more} failed or hung there"


def _node_lines(report: JobReport) -> Iterator[str]:
    if report.fair_share is not None and report.fulfilment is not None:
        share = f"fair share {report.fair_share:.4g} trainers"
        if report.objective == "utility":  # half of a share is rounded down
            share = f"at least {count(int(report.fair_share + EPSILON), 'trainer')}"
        yield f"  {share}, fulfilment {report.fulfilment:.2g}"
    yield from (f"  {line}" for line in report.domains)
    for one in report.by_node[:NODES_LISTED]:
        parts = [
            f"{n} {word}" for n, word in ((one.stay, "stay"), (one.come, "to start"), (one.go, "to be deleted")) if n
        ]
        yield f"  {one.node or 'no node yet'}{f' ({one.pool})' if one.pool else ''}: {', '.join(parts)}"
    if (more := len(report.by_node) - NODES_LISTED) > 0:
        yield f"  and {count(more, 'more node')} (-o json names them)"


def _scarcity(report: JobReport) -> Iterator[str]:
    for full in report.full:
        if full.resource.startswith(RULE_PREFIX):
            yield f"  {full.resource}: no more on {full.place}"
            continue
        yield (
            f"  {plain(full.resource)} is {state_of(is_proved=full.is_proved)} on {full.place}: at most"
            f" {full.most_free} free; a trainer requests {full.requested}"
        )
        if full.others:
            pods = count(full.others, "pod")
            yield f"  pods that are not of training jobs request {full.by_others} of it there ({pods})"
    for older in report.older[:HOLDERS_LISTED]:
        yield f"  {older}"
    for held in report.held[:HOLDERS_LISTED]:
        trainers = count(held.trainers, "trainer")
        yield f"  {held.job} holds {100 * held.part:.2g} % of it above its minimum ({trainers})"
    if rest := report.held[HOLDERS_LISTED:]:
        yield f"  {count(len(rest), 'other job')} {100 * sum(h.part for h in rest):.2g} %"
    if report.one_more is not None:
        as_is = "; older trainers count as they are" if report.older else ""
        yield f"  {_confirmed(report.one_more, report.objective)}{as_is}"


def _confirmed(one: Confirmed, unit: str) -> str:
    price = f"one more place for its trainer has a price of {one.price:.2g} of {unit}"
    shown = {
        OneMore.COSTS: f"all jobs together would lose {one.cost:.2g} of {unit}",
        OneMore.FREE: "it would cost nothing in fractions of trainers, but whole trainers do not fit",
        OneMore.BELOW_SHARES: "another job would fall below its fair share",
        OneMore.IMPOSSIBLE: "it does not fit even with every other job at its minimum",
    }
    return f"{price}; solved again with one more trainer: {shown[one.verdict]}"
