"""Changes plans and certificates at random and lets the verifier and the judge look at them.

    python -m tests.tools.mutations 100000 [SEED]

Some changes hit any field; some are what a liar would do: a lower bound, one trainer more with all sums corrected, a
pod on another node. Every change that the judge finds harmful must be refused.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from edl.errors import EdlError
from tests.tools.certified_clusters import Certified, Object, certify_objects, random_objects, with_speeds
from tests.tools.judge import Judge
from tests.tools.verifier import faults, of_speeds, verifier

CHANGES_OF_ONE_WORLD = 250
UNCHECKED = {
    "prices",
    "seconds",
    "reason",
    "message",
    "objective",
    "gap",
    "short",
    "weakerBy",
    "note",
    "leftOut",
    "format",
}
"""Fields of a plan and a certificate that are for reading: the check neither needs nor confirms them."""

POLICIES = ("maxmin", "utility", "goodput")
RESTATED = {"trainer more", "trainer less", "victim spared", "floor", "cap", "job withdrawn"}
"""Changes after which a liar states what the plan is worth then."""

Documents = tuple[Object, Object]
Change = Callable[[Random, Object, Object], str]


def worlds(seed: int, folder: Path) -> Iterator[Certified]:
    """Certified clusters with something to change, without end."""
    while True:
        seed += 1
        policy = POLICIES[seed % len(POLICIES)]
        try:
            objects = with_speeds(random_objects(seed, may_lend=True), seed)
            world = certify_objects(objects, folder, policy=policy)
        except EdlError:  # a certificate does not cover everything
            continue
        if world.certificate["jobs"]:
            yield world


def run(changes: int, seed: int) -> Counter[str]:
    """Make so many changes; return how many were refused, and how many were accepted and are harmless.

    Raises:
        AssertionError: a harmful change was accepted, or the check refuses what edl made.
    """
    counts: Counter[str] = Counter()
    random = Random(seed)  # noqa: S311
    with TemporaryDirectory() as folder:
        for world in worlds(seed * 100_000, Path(folder)):
            assert faults(world.objects, world.plan, world.certificate, script_of(world)) == []
            judge = Judge(world)
            assert judge.harms(world.plan, world.certificate) == [], json.dumps(world.objects)
            for _ in range(min(CHANGES_OF_ONE_WORLD, changes - counts.total())):
                counts[_try(random, world, judge)] += 1
            if counts.total() == changes:
                return counts
    return counts


def _try(random: Random, world: Certified, judge: Judge) -> str:
    plan, certificate = json.loads(json.dumps(world.plan)), json.loads(json.dumps(world.certificate))
    done = [random.choice(CHANGES)(random, plan, certificate) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    if (plan, certificate) == (world.plan, world.certificate):
        return "without effect"
    if world.policy != "maxmin" and RESTATED.intersection(done):
        _restate_worth(plan, certificate, judge)
    if faults(world.objects, plan, certificate, script_of(world)):
        return "refused"
    harms = judge.harms(plan, certificate)
    assert not harms, f"accepted after {done}: {harms}\n{json.dumps([world.objects, plan, certificate])}"
    return "accepted, harmless"


def script_of(world: Certified) -> Any:
    """The script that checks a plan."""
    return verifier if world.policy == "maxmin" else of_speeds


def _restate_worth(plan: Object, certificate: Object, judge: Judge) -> None:
    """State what a changed plan is worth by the speeds of its jobs, in both documents."""
    with suppress(KeyError, TypeError, AttributeError, ValueError, ArithmeticError):  # another change broke them
        plan["certificate"]["achieved"] = certificate["plan"]["achieved"] = judge.value(plan, certificate)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in UNCHECKED or path[:1] in (("proofs",), ("levels",)):
                yield (*path, key)
                yield from _leaves(item, (*path, key))


def change_any_field(random: Random, plan: Object, certificate: Object) -> str:
    """Change, remove or double one field or one entry anywhere."""
    document = random.choice((plan, certificate))
    path = random.choice(list(_leaves(document)))
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    key, value = path[-1], holder[path[-1]]
    if random.random() < 0.15:
        del holder[key]
    elif isinstance(holder, list) and random.random() < 0.2:
        holder.append(value)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = value + random.choice((-2, -1, 1, 2, 1000))
    elif isinstance(value, float):
        holder[key] = value * random.choice((0.5, 0.99, 1.01, 2)) + random.choice((0, 0.01, -0.01))
    elif isinstance(value, str) and value.isdigit():
        holder[key] = str(int(value) * random.choice((0, 1, 9, 10, 11, 20)) // 10 + random.choice((0, 1, -1)))
    elif isinstance(value, str):
        holder[key] = random.choice(_texts(plan, certificate))
    elif isinstance(value, dict) and value and random.random() < 0.5:
        renamed = random.choice(_texts(plan, certificate))
        value[renamed] = value.pop(random.choice(sorted(value)))
    else:
        holder[key] = random.choice((None, 0, "", [], {}, [value]))
    return f"field {path}"


def _texts(plan: Object, certificate: Object) -> list[str]:
    """Names that mean something elsewhere in the documents."""
    found = {"n0", "n1", "nowhere", ""}
    for decision in plan["decisions"] if isinstance(plan.get("decisions"), list) else ():
        if isinstance(decision, dict):
            found |= {str(name) for key in ("victims", "nodes") for name in decision.get(key) or ()}
    pods = certificate.get("pods")
    return sorted(found | {str(name) for name in (pods if isinstance(pods, dict) else ())})


def _careful(change: Change) -> Change:
    """A change that does nothing to documents that an earlier one broke."""

    def careful(random: Random, plan: Object, certificate: Object) -> str:
        try:
            return change(random, plan, certificate)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, StopIteration):
            return "nothing"

    return careful


def _restate(plan: Object, certificate: Object, difference: float) -> None:
    plan["certificate"]["achieved"] += difference
    certificate["plan"]["achieved"] = plan["certificate"]["achieved"]
    _restate_levels(plan, certificate)


def _restate_levels(plan: Object, certificate: Object) -> None:
    """Make the stated levels those of the changed plan; their bounds stay, as far as there are any."""
    found: dict[Fraction, list[str]] = {}
    for decision in plan["decisions"]:
        key, low = f"{decision['namespace']}/{decision['name']}", decision["min"]
        if key in certificate["jobs"] and (span := certificate["jobs"][key]["cap"] - low) > 0:
            found.setdefault(Fraction(decision["target"] - low, span), []).append(key)
    levels = plan["certificate"]["levels"]
    lowest = sorted(level for level in found if level < 1)[: len(levels)]
    for level, stated in zip(lowest, levels, strict=False):
        stated["fulfilment"], stated["jobs"] = float(level), sorted(found[level])
    for document in (levels, certificate["levels"]):
        del document[len(lowest) :]


def _gain(decision: Object, certificate: Object) -> float:
    fact = certificate["jobs"][f"{decision['namespace']}/{decision['name']}"]
    span = fact["cap"] - decision["min"]
    return 1 / span if span > 0 else 0.0


def lower_a_bound(random: Random, _: Object, certificate: Object) -> str:
    """Claim a lower bound."""
    proof = certificate["proofs"][random.choice(sorted(certificate["proofs"]))]
    proof["bound"] = str(int(int(proof["bound"]) * random.choice((0.1, 0.5, 0.9, 0.99, 0.999_999))))
    return "lower bound"


def lower_a_level(random: Random, plan: Object, certificate: Object) -> str:
    """Claim that the worst off could have less, or nothing more than they have."""
    number = random.randrange(len(certificate["levels"]))
    stated, proof = plan["certificate"]["levels"][number], certificate["levels"][number]
    bound = Fraction(proof["bound"]) * random.choice((Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)))
    proof["bound"] = str(random.choice((bound, Fraction(stated["fulfilment"]).limit_denominator(100))))
    stated["bound"] = float(Fraction(proof["bound"]))
    return "lower level"


def swap_levels(random: Random, plan: Object, certificate: Object) -> str:
    """Claim of one level what was proved of another."""
    number, other = random.choices(range(len(certificate["levels"])), k=2)
    certificate["levels"][number] = certificate["levels"][other]
    if random.random() < 0.5:
        plan["certificate"]["levels"][number]["bound"] = plan["certificate"]["levels"][other]["bound"]
    return "levels swapped"


def scale_level_prices(random: Random, _: Object, certificate: Object) -> str:
    """Scale the prices of a level, all or only those of pods."""
    proof, factor = random.choice(certificate["levels"]), random.choice((-1, 0, 0.5, 1.1, 3))
    for prices in (proof["prices"], *(proof["nodePrices"].values() if random.random() < 0.5 else ())):
        for name in prices:
            prices[name] = str(int(int(prices[name]) * factor))
    return "level prices"


def claim_the_optimum(_: Random, plan: Object, certificate: Object) -> str:
    """Claim that nothing is better than the plan."""
    for proof in certificate["proofs"].values():
        proof["bound"] = str(
            int(Fraction(plan["certificate"]["achieved"]) * int(certificate["denominator"])) + 10**12
        )
    return "optimum"


def scale_prices(random: Random, _: Object, certificate: Object) -> str:
    """Scale the prices of a proof, and claim a bound that is lower or the same."""
    proof, factor = (
        certificate["proofs"][random.choice(sorted(certificate["proofs"]))],
        random.choice((-1, 0, 0.5, 0.9, 1.1, 2)),
    )
    for prices in (proof["prices"], *proof["nodePrices"].values()):
        for name in prices:
            prices[name] = str(int(int(prices[name]) * factor))
    proof["bound"] = str(int(int(proof["bound"]) * random.choice((0.9, 1, 1, 1.1))))
    return "prices"


def add_a_trainer(random: Random, plan: Object, certificate: Object) -> str:
    """One trainer more on some node, with every sum corrected."""
    decision = random.choice([d for d in plan["decisions"] if d["admitted"]])
    node = random.choice(_texts(plan, certificate))
    decision["nodes"][node] = decision["nodes"].get(node, 0) + 1
    decision["target"] += 1
    _restate(plan, certificate, _gain(decision, certificate))
    return "trainer more"


def drop_a_trainer(random: Random, plan: Object, certificate: Object) -> str:
    """One new trainer less, with every sum corrected."""
    decision = random.choice([d for d in plan["decisions"] if d["nodes"]])
    node = random.choice(sorted(decision["nodes"]))
    decision["nodes"][node] -= 1
    if not decision["nodes"][node]:
        del decision["nodes"][node]
    decision["target"] -= 1
    _restate(plan, certificate, -_gain(decision, certificate))
    return "trainer less"


def spare_a_victim(random: Random, plan: Object, certificate: Object) -> str:
    """One victim less, with every sum corrected."""
    decision = random.choice([d for d in plan["decisions"] if d["victims"]])
    decision["victims"].remove(random.choice(decision["victims"]))
    decision["target"] += 1
    _restate(plan, certificate, _gain(decision, certificate) if decision["admitted"] else 0.0)
    return "victim spared"


def move_a_pod(random: Random, plan: Object, certificate: Object) -> str:
    """A new trainer, a master, a pserver or a serving pod on another node."""
    node = random.choice(_texts(plan, certificate))
    kind = random.choice((0, 1, 2, 2))
    if kind == 0:
        decision = random.choice([d for d in plan["decisions"] if d["nodes"]])
        left = random.choice(sorted(decision["nodes"]))
        count = decision["nodes"].pop(left)
        decision["nodes"][node] = decision["nodes"].get(node, 0) + count
    elif kind == 1:
        fact = random.choice([f for f in certificate["jobs"].values() if f["master"] or f["pserver"]])
        role = random.choice([role for role in ("master", "pserver") if fact[role]])
        fact[role][0] = node
    else:
        certificate["pods"][random.choice(sorted(certificate["pods"]))] = node
    return "pod moved"


def change_a_rule(random: Random, plan: Object, certificate: Object) -> str:
    """Another floor or another cap, with every sum corrected; the bound may stay or go down."""
    key = random.choice(sorted(certificate["jobs"]))
    fact = certificate["jobs"][key]
    decision = next(d for d in plan["decisions"] if f"{d['namespace']}/{d['name']}" == key)
    low, target, kind = decision["min"], decision["target"], random.choice(["floor", "cap"])
    before = (target - low) / (fact["cap"] - low) if fact["cap"] > low else 1.0
    fact[kind] = max(0, fact[kind] + random.choice((-2, -1, 1, 2)))
    after = (target - low) / (fact["cap"] - low) if fact["cap"] > low else 1.0
    _restate(plan, certificate, after - before)
    if random.random() < 0.3:
        lower_a_bound(random, plan, certificate)
    return kind


def withdraw_a_job(random: Random, plan: Object, certificate: Object) -> str:
    """Take the admission of a job away, or only its facts."""
    decision = random.choice([d for d in plan["decisions"] if d["admitted"]])
    fact = certificate["jobs"].pop(f"{decision['namespace']}/{decision['name']}")
    decision["admitted"] = random.random() < 0.3
    if random.random() < 0.7:
        span = fact["cap"] - decision["min"]
        _restate(plan, certificate, -((decision["target"] - decision["min"]) / span if span > 0 else 1.0))
        decision.update(target=0, nodes={})
    return "job withdrawn"


CHANGES: tuple[Change, ...] = (
    *map(
        _careful,
        (
            *[change_any_field] * 3,
            lower_a_bound,
            lower_a_level,
            swap_levels,
            scale_level_prices,
            claim_the_optimum,
            scale_prices,
            add_a_trainer,
            drop_a_trainer,
            spare_a_victim,
            move_a_pod,
            change_a_rule,
            withdraw_a_job,
        ),
    ),
)


def main(arguments: list[str]) -> None:
    """Make as many changes as the command line names, and print what became of them."""
    started_s = time.process_time()
    counts = run(int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1)
    print(dict(sorted(counts.items())), f"{time.process_time() - started_s:.0f} CPU seconds")


if __name__ == "__main__":
    main(sys.argv[1:])
