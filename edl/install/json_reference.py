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
    ("decisions[].target", "trainers that the plan gives the job"),
    ("decisions[].min", "`min-instance`"),
    ("decisions[].max", "`max-instance`"),
    ("decisions[].admitted", "true if the job runs"),
    ("decisions[].victims[]", "trainers that the plan deletes"),
    ("decisions[].nodes.<node>", "trainers that start on that node"),
    ("decisions[].moves.<pod>", "node to which that pserver moves"),
    ("decisions[].reason", "one word, see [conditions and reasons](conditions.md)"),
    ("decisions[].message", "the short line"),
    ("decisions[].lending.cpuMilli", "CPU that its trainers lend, in thousandths of a core; only if they lend"),
    ("decisions[].lending.slowed", "trainers that are slowed because of lent CPU"),
    (
        "decisions[].asks.group",
        "only if it may ask for [nodes](../how-to/nodes-on-demand.md) and lacks capacity: the group",
    ),
    ("decisions[].asks.nodes", "how many nodes the job asks for"),
    ("decisions[].asks.pricePerHour", "the price of all these nodes per hour, in the unit of the file"),
    ("decisions[].asks.gain", "trainers that the job gains by these nodes; 0 if an earlier plan has asked for them"),
    ("decisions[].asks.obstacle", "why the job asks for no node; null if it asks"),
    ("certificate.objective", "what is maximised: `fulfilment` or `utility`"),
    ("certificate.achieved", "what the plan achieves"),
    ("certificate.bound", "what no plan can exceed, see [the certificate](../certificate.md)"),
    ("certificate.gap", "the distance between the two, as a part of the bound"),
    (
        "certificate.levels[].fulfilment",
        "only of `edl plan`, and only if no pod moves: the fulfilment of the worst off, then of the next, at most"
        " three; none under `utility`",
    ),
    (
        "certificate.levels[].bound",
        "the highest fulfilment that these jobs, and all jobs above the level, could all have",
    ),
    ("certificate.levels[].jobs[]", "the jobs of the level, as NAMESPACE/NAME"),
    (
        "certificate.staying",
        "what no plan with these levels can exceed if the trainers that this plan keeps stay on their nodes",
    ),
    ("certificate.repacked", "what no plan with these levels can exceed if all pods are repacked"),
    ("prices[].kind", "what the price belongs to, such as a class of nodes or a shape of pods"),
    ("prices[].name", "the name of that class, shape or other thing"),
    ("prices[].resource", "the resource that is scarce"),
    ("prices[].price", "what one more unit of the resource would add to the objective"),
    ("serving.waiting", "serving pods that wait for a node"),
    ("serving.placed", "waiting serving pods for which the plan has capacity"),
    ("serving.short", "waiting serving pods that would fit on no node, even without training"),
    (
        "headroom[].request.<resource>",
        "only with learned headroom: the request of the serving pods for which capacity is kept",
    ),
    ("headroom[].wanted", "for how many such pods capacity should be kept"),
    ("headroom[].held", "for how many such pods the plan keeps capacity"),
    ("headroom[].deleted", "trainers that the plan deletes for that capacity"),
    ("headroom[].reason", "why capacity should be kept for so many pods"),
    ("seconds", "how long the decision took, in seconds"),
    ("stages.<stage>", "seconds of each stage of the decision"),
    ("comparison.policy", "the name of the policy, if its plans are for comparison only"),
    ("comparison.pending", "trainers that would stay without a node under that policy"),
    ("fallback", "why no plan was made in time; the plan shown is then the last one without growth"),
    ("cut[]", "the stages that the deadline cut short; absent if none"),
    ("changes.against", "only with several `-f`: the first file"),
    ("changes.jobs[].namespace", "namespace of a job whose plan changes"),
    ("changes.jobs[].name", "its name"),
    ("changes.jobs[].before.target", "trainers without the later files; `before` is null if the job is new"),
    ("changes.jobs[].before.admitted", "true if the job runs without the later files"),
    ("changes.jobs[].before.reason", "reason of the job without the later files"),
    ("changes.jobs[].after.target", "trainers with the later files; `after` is null if the job is gone"),
    ("changes.jobs[].after.admitted", "true if the job runs with the later files"),
    ("changes.jobs[].after.reason", "reason of the job with the later files"),
    ("changes.jobs[].trainers", "how many more trainers the job gets with the later files"),
    ("changes.jobs[].fulfilment", "how much more fulfilment the job gets with the later files"),
    ("changes.same", "number of jobs whose plan does not change"),
    ("changes.achieved.before", "what the plan achieves without the later files"),
    ("changes.achieved.after", "what the plan achieves with the later files"),
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
    ("current", "trainers that the job has now"),
    ("target", "trainers that the plan gives the job"),
    ("min", "`min-instance`"),
    ("max", "`max-instance`"),
    ("admitted", "true if the job runs"),
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
    (
        "overcommit[].node",
        "the node with trainers of the job where limits exceed capacity most; null if there is none",
    ),
    ("overcommit[].worst", "the sum of limits on that node, as a part of its capacity"),
    ("speeds.unit", "`goodput` or `samples`, each a second; `speeds` is null under a policy that looks at no speeds"),
    (
        "speeds.globalBatch",
        "samples of a step, which the job has chosen; null if it has one batch, or if unknown",
    ),
    ("speeds.counts[].instances", "a number of trainers"),
    ("speeds.counts[].perSecond", "speed with so many trainers as the policy counts it, in `speeds.unit`"),
    ("speeds.counts[].samplesPerSecond", "all samples a second; null if not known"),
    ("speeds.counts[].efficiency", "the useful part of these samples; null if not known"),
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
    ("speeds.change.measured", "true if the cost was measured or declared"),
    ("speeds.change.countedOverSeconds", "the time in seconds over which a gain has to make up for the cost"),
    ("speeds.change.leastGain", "the part by which a change must make the job faster"),
    ("speeds.change.restSeconds", "how long after a resize the job does not grow"),
    ("speeds.change.growsFrom", "the job does not grow before this time; null if it may grow now"),
    ("speeds.change.last.from", "trainers before its last resize; `last` is null without one"),
    ("speeds.change.last.to", "trainers after its last resize"),
    ("speeds.change.last.time", "time of its last resize"),
    ("speeds.change.last.costSeconds", "training time that its last resize cost, in seconds"),
    ("speeds.whyNot", "why the job does not get the next count; null if nothing is to be said"),
    ("lendingPrice", "cores' worth of speed lost for each core that slow trainers lend; null if not measured"),
    ("victims[]", "trainers that the plan deletes"),
    ("asks.group", "as `decisions[].asks` of `edl plan`; `asks` is null if it may not ask or lacks no capacity"),
    ("asks.nodes", "how many nodes the job asks for"),
    ("asks.pricePerHour", "the price of these nodes per hour"),
    ("asks.gain", "trainers that the job gains by these nodes"),
    ("asks.obstacle", "why the job asks for no node; null if it asks"),
    ("fairShare", "trainers of the job's fair share; null if the job does not run"),
    ("fulfilment", "1 if it has all of its fair share that it can use"),
    ("nodes[].node", "a node with trainers of the job"),
    ("nodes[].pool", "pool of the node"),
    ("nodes[].stay", "trainers that stay there"),
    ("nodes[].come", "trainers that start there"),
    ("nodes[].go", "trainers that are deleted there"),
    ("full[].resource", "a resource that is full, or short"),
    ("full[].where", "the nodes on which the resource is full"),
    ("full[].nodes", "the number of these nodes"),
    ("full[].free", "the most of the resource that one of these nodes has free"),
    ("full[].asked", "what a trainer requests"),
    ("full[].proved", "false if another arrangement of the pods that start may have a slot, but none was found"),
    ("holders[].namespace", "namespace of one of the jobs that use most of the full resource"),
    ("holders[].name", "its name"),
    ("holders[].trainers", "its trainers on these nodes"),
    ("holders[].part", "the part of the full resource that the job uses"),
    ("oneMore.price", "worth of the capacity that one more trainer takes; `oneMore` is null if none fits"),
    ("oneMore.result", "what giving the job one more trainer would lead to"),
    ("oneMore.cost", "what one more trainer would cost the objective"),
    ("avoided[].node", "a node on which its new trainers do not start"),
    ("avoided[].until", "when edl tests the node with one trainer"),
    ("avoided[].jobs[]", "the jobs whose trainers failed or hung on the node"),
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
    """List a type and the types that it is made of: `list[Interval] | None` is a list, an Interval and None."""
    return [
        get_origin(annotation) or annotation,
        *(found for one in get_args(annotation) for found in _types_in(one)),
    ]


def _section(title: str, fields: Fields) -> str:
    rows = "\n".join(f"| `{path}` | {meaning} |" for path, meaning in fields)
    return f"## {title}\n\n| field | meaning |\n|---|---|\n{rows}\n"
