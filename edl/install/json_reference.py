"""The page docs/reference/json.md: the fields that commands print with `--output json`.

A test compares them with what the commands print.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args, get_origin

from edl.shadow.document import Part, Report

JSON_PAGE = "docs/reference/json.md"
Fields = tuple[tuple[str, str], ...]

PLAN: Fields = (
    ("decisions[].namespace", "namespace of the job"),
    ("decisions[].name", "its name"),
    ("decisions[].current", "trainers that it has now"),
    ("decisions[].target", "trainers that it is to have"),
    ("decisions[].min", "`min-instance`"),
    ("decisions[].max", "`max-instance`"),
    ("decisions[].admitted", "true if it runs"),
    ("decisions[].victims[]", "trainers that are deleted"),
    ("decisions[].nodes.<node>", "trainers that start on that node"),
    ("decisions[].moves.<pod>", "node to which that pserver moves"),
    ("decisions[].reason", "one word, see [conditions and reasons](conditions.md)"),
    ("decisions[].message", "the short line"),
    ("decisions[].lending.cpuMilli", "CPU that its trainers lend, in thousandths of a core; only if they lend"),
    ("decisions[].lending.slowed", "trainers that are slow for it"),
    (
        "decisions[].asks.group",
        "only if it may ask for [nodes](../how-to/nodes-on-demand.md) and lacks capacity: the group",
    ),
    ("decisions[].asks.nodes", "how many nodes it asks for"),
    ("decisions[].asks.pricePerHour", "the price of all of them, in the unit of the file"),
    ("decisions[].asks.gain", "trainers that it gains by them; 0 if an earlier plan knew"),
    ("decisions[].asks.obstacle", "why it asks for none; null if it asks"),
    ("certificate.objective", "what is maximised: `fulfilment` or `utility`"),
    ("certificate.achieved", "what the plan achieves"),
    ("certificate.bound", "what no plan can exceed, see [the certificate](../certificate.md)"),
    ("certificate.gap", "the distance between the two, as a part of the bound"),
    (
        "certificate.levels[].fulfilment",
        "only of `edl plan`, and only if no pod moves: the fulfilment of the worst off, then of the next, at most"
        " three; none under `utility`",
    ),
    ("certificate.levels[].bound", "what they, and all jobs that have more, could all have at best"),
    ("certificate.levels[].jobs[]", "the jobs of the level, as NAMESPACE/NAME"),
    (
        "certificate.staying",
        "what no plan with these levels can exceed if the trainers that this plan keeps stay on their nodes",
    ),
    ("certificate.repacked", "what no plan with these levels can exceed if all pods are repacked"),
    ("prices[].kind", "what the price belongs to, such as a class of nodes or a shape of pods"),
    ("prices[].name", "its name"),
    ("prices[].resource", "the resource that is scarce"),
    ("prices[].price", "what one more unit of it is worth"),
    ("serving.waiting", "serving pods that wait for a node"),
    ("serving.placed", "those of them for which the plan frees capacity"),
    ("serving.short", "those that fit on no node"),
    ("headroom[].request.<resource>", "only with learned headroom: what a pod requests for which capacity is kept"),
    ("headroom[].wanted", "for how many such pods"),
    ("headroom[].held", "for how many the plan has capacity"),
    ("headroom[].deleted", "trainers that the plan deletes for it"),
    ("headroom[].reason", "why so many"),
    ("seconds", "time of the decision"),
    ("stages.<stage>", "seconds of each of its stages"),
    ("comparison.policy", "only for a policy that is only to compare with: its name"),
    ("comparison.pending", "trainers that would stay without a node"),
    ("fallback", "only if no plan was made in time: why, and the plan is the last one without growth"),
    ("cut[]", "only if the deadline cut stages short: which"),
    ("changes.against", "only with several `-f`: the first file"),
    ("changes.jobs[].namespace", "namespace of a job whose plan changes"),
    ("changes.jobs[].name", "its name"),
    ("changes.jobs[].before.target", "trainers without the later files; `before` is null if the job is new"),
    ("changes.jobs[].before.admitted", "true if it runs without them"),
    ("changes.jobs[].before.reason", "its reason without them"),
    ("changes.jobs[].after.target", "trainers with the later files; `after` is null if the job is gone"),
    ("changes.jobs[].after.admitted", "true if it runs with them"),
    ("changes.jobs[].after.reason", "its reason with them"),
    ("changes.jobs[].trainers", "how many more trainers it gets"),
    ("changes.jobs[].fulfilment", "how much more of its fulfilment it gets"),
    ("changes.same", "number of jobs whose plan does not change"),
    ("changes.achieved.before", "what the plan achieves without the later files"),
    ("changes.achieved.after", "what it achieves with them"),
    ("changes.serving.before.waiting", "serving pods that wait without the later files"),
    ("changes.serving.before.placed", "those of them for which there is capacity"),
    ("changes.serving.after.waiting", "serving pods that wait with the later files"),
    ("changes.serving.after.placed", "those of them for which there is capacity"),
)
EXPLAIN: Fields = (
    ("namespace", "namespace of the job"),
    ("name", "its name"),
    ("observedAt", "time of the observation; null if the input has none"),
    ("policy", "policy of the plan"),
    ("objective", "what is maximised"),
    ("current", "trainers that it has now"),
    ("target", "trainers that it is to have"),
    ("min", "`min-instance`"),
    ("max", "`max-instance`"),
    ("admitted", "true if it runs"),
    ("reason", "one word, see [conditions and reasons](conditions.md)"),
    ("message", "the short line"),
    ("account", "the full account"),
    ("degraded.reason", "reason of the condition `Degraded`; `degraded` is null without it"),
    ("degraded.message", "its message"),
    ("qosClass", "QoS class of its trainers; null if its spec is not valid"),
    ("admission", "null, or the requests of a trainer that admission changes"),
    ("admission.spec", "by resource: what its spec asks for"),
    ("admission.pods", "by resource: what its pods request"),
    ("overcommit[].resource", "`cpu` or `memory`"),
    ("overcommit[].cluster", "sum of the limits of bound pods, as a part of what ready nodes have"),
    ("overcommit[].withoutLimit", "bound pods that have no limit of it, on ready nodes"),
    ("overcommit[].node", "the node with trainers of the job where that part is largest; null if it has none"),
    ("overcommit[].worst", "that part there"),
    ("speeds.unit", "`goodput` or `samples`, each a second; `speeds` is null under a policy that looks at no speeds"),
    (
        "speeds.globalBatch",
        "samples of a step, which the job has chosen; null if it has one batch, or if unknown",
    ),
    ("speeds.counts[].instances", "a number of trainers"),
    ("speeds.counts[].perSecond", "what the policy counts with so many trainers"),
    ("speeds.counts[].samplesPerSecond", "all samples a second; null if not known"),
    ("speeds.counts[].efficiency", "the useful part of them; null if not known"),
    ("speeds.counts[].globalBatch", "samples of a step; null if not known"),
    (
        "speeds.counts[].source",
        "`declared`, `measured`, `predicted` by trainers, `between` two known counts, `beyond` them, `flat` where"
        " nothing is known any more, or `unknown`",
    ),
    ("speeds.flatFrom", "from this count on no trainer adds anything; 0 if nothing is known"),
    (
        "speeds.change.costSeconds",
        "training time that a resize costs; `change` is null if none is charged",
    ),
    ("speeds.change.measured", "true if it was measured or declared"),
    ("speeds.change.countedOverSeconds", "the time over which a gain has to make up for it"),
    ("speeds.change.leastGain", "the part by which a change must make the job faster"),
    ("speeds.change.restSeconds", "so long after a resize it does not grow"),
    ("speeds.change.growsFrom", "it does not grow before this time; null if it may"),
    ("speeds.change.last.from", "trainers before its last resize; `last` is null without one"),
    ("speeds.change.last.to", "trainers after it"),
    ("speeds.change.last.time", "when it was"),
    ("speeds.change.last.costSeconds", "what it cost"),
    ("speeds.whyNot", "why the job does not get the next count; null if nothing is to be said"),
    ("lendingPrice", "cores' worth of speed lost for each core that slow trainers lend; null if not measured"),
    ("victims[]", "trainers that are deleted"),
    ("asks.group", "as `decisions[].asks` of `edl plan`; `asks` is null if it may not ask or lacks no capacity"),
    ("asks.nodes", "how many nodes it asks for"),
    ("asks.pricePerHour", "their price"),
    ("asks.gain", "trainers that it gains by them"),
    ("asks.obstacle", "why it asks for none; null if it asks"),
    ("fairShare", "trainers of its fair share; null if it does not run"),
    ("fulfilment", "1 if it has all of its fair share that it can use"),
    ("nodes[].node", "a node with trainers of the job"),
    ("nodes[].pool", "pool of the node"),
    ("nodes[].stay", "trainers that stay there"),
    ("nodes[].come", "trainers that start there"),
    ("nodes[].go", "trainers that are deleted there"),
    ("full[].resource", "a resource that is full, or short"),
    ("full[].where", "the nodes where it is"),
    ("full[].nodes", "their number"),
    ("full[].free", "the most that one of them has free"),
    ("full[].asked", "what a trainer requests"),
    ("full[].proved", "false if another arrangement of the pods that start may have a slot, but none was found"),
    ("holders[].namespace", "namespace of a job that holds most of what is full"),
    ("holders[].name", "its name"),
    ("holders[].trainers", "its trainers there"),
    ("holders[].part", "its part of what is full"),
    ("oneMore.price", "worth of the capacity that one more trainer takes; `oneMore` is null if none fits"),
    ("oneMore.result", "what would come of it"),
    ("oneMore.cost", "what it would cost the objective"),
    ("avoided[].node", "a node on which its new trainers do not start"),
    ("avoided[].until", "when one trainer is tried there"),
    ("avoided[].jobs[]", "the jobs whose trainers failed or hung there"),
    ("remedies[]", "what would help, each on its own"),
)
REPLAY: Fields = (
    ("records[].file", "file of the record"),
    ("records[].result", "`same`, `different`, or why it was not computed"),
    ("records[].policy", "policy of the record"),
    ("records[].observedAt", "time of the observation"),
    ("records[].aheadOfPlan", "true if trainers freed capacity for serving pods ahead of a plan; null if unreadable"),
    ("records[].problem", "why the record was not replayed"),
    ("records[].reworded", "sentences that are worded differently now"),
    ("records[].differences[].job", "a job with another decision"),
    ("records[].differences[].field", "the field that differs"),
    ("records[].differences[].recorded", "its value in the record"),
    ("records[].differences[].now", "its value now"),
    ("summary.<result>", "number of records with that result"),
)
AUDIT: Fields = (
    ("epochs[].epoch", "number of the epoch, from 0"),
    ("epochs[].total", "its records"),
    ("epochs[].done", "records that were counted"),
    ("epochs[].redispatched", "records that were given out again"),
    ("epochs[].quarantined[][]", "first and last record of each range that was left out; the last is not part of it"),
    ("epochs[].records[]", "the first of those records, by number"),
    ("epochs[].closed", "true if the epoch is over"),
    ("epochs[].by.<trainer>", "records that count, by the trainer that has done them"),
    ("ok", "true if nothing is lost and nothing counted twice"),
    ("problems[]", "each rule that is broken"),
)
COMMANDS = {"edl plan": PLAN, "edl explain": EXPLAIN, "edl replay": REPLAY, "edl audit": AUDIT}
_HEAD = """# JSON

<!-- Written by `make generate` from edl/install/json_reference.py; changes here are lost. -->

The fields that commands print with `-o json`, for scripts. `a[].b` is field `b` of each entry of list `a`.
`<node>` stands for a name. New fields may be added; fields keep their names and their meaning. `edl get -o
json` prints the TrainingJob itself, whose fields are [here](../trainingjob.md). `edl master status -o json`
prints the answer of [`GET /v1/status`](http.md)."""


def json_page() -> str:
    """The text of the page."""
    sections = (_section(f"`{command} -o json`", fields) for command, fields in COMMANDS.items())
    return "\n".join([_HEAD, *sections, _section("`report.json` of `edl shadow`", tuple(fields_of(Report)))])


def fields_of(part: type[Part], path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a part of the report of `edl shadow`, each with its description; those of its parts in order."""
    for info in part.model_fields.values():
        parts = [one for one in _types_in(info.annotation) if isinstance(one, type) and issubclass(one, Part)]
        kinds = _types_in(info.annotation)
        mark = "[]" if list in kinds else ".<name>" if dict in kinds else ""
        name = f"{path}{info.alias}{mark}"
        if info.description:
            yield name, info.description
        for inner in parts:
            yield from fields_of(inner, f"{name}.")


def _types_in(annotation: object) -> list[object]:
    """A type with those that it is made of: `list[Interval] | None` is a list, an Interval and None."""
    return [
        get_origin(annotation) or annotation,
        *(found for one in get_args(annotation) for found in _types_in(one)),
    ]


def _section(title: str, fields: Fields) -> str:
    rows = "\n".join(f"| `{path}` | {meaning} |" for path, meaning in fields)
    return f"## {title}\n\n| field | meaning |\n|---|---|\n{rows}\n"
