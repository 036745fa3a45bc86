"""`make small-scope`: search scenes whole, replay a trace, or show how the planted bugs are found.

python -m tests.worlds.small_scope [SCENE ...]           search these scenes, or all
python -m tests.worlds.small_scope replay SCENE 'STEPS'  take the steps of a trace, separated by ;
python -m tests.worlds.small_scope bugs [WORD ...]       plant each bug, or those that name a word
"""

from __future__ import annotations

import os
import sys

from tests.planted import Bug, small_scope
from tests.planted.install import swapped
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.scenes import SCENES
from tests.worlds.small_scope.search import Figures, Search, replay
from tests.worlds.small_scope.space import Space

MOST = int(os.environ.get("EDL_STATES", "2000000"))
HEADS = ("scene", "states", "steps", "depth", "at rest", "turns", "plans", "CPU s", "")


def main(words: list[str]) -> int:
    """Do what the words request; 1 if a rule is broken, or a bug is not found."""
    match words:
        case ["replay", scene, trace]:
            return replayed(scene, trace)
        case ["bugs", *names]:
            return bugs(names)
    unknown = [word for word in words if word not in SCENES]
    if unknown:
        print(f"there is no scene {unknown[0]}; choose from {', '.join(SCENES)}", file=sys.stderr)
        return 2
    return searched(words or list(SCENES))


def searched(names: list[str]) -> int:
    """Search scenes and print a table of the figures."""
    plans, found = RememberedPlans(), []
    print(_row(*HEADS))
    for name in names:
        figures = search(name, plans, MOST)
        found.append(figures)
        counts = (figures.states, figures.steps, figures.depth, figures.at_rest, figures.turns, figures.plans)
        print(_row(name, *counts, f"{figures.seconds:.1f}", "" if figures.is_whole else "not whole"), flush=True)
        if figures.broken:
            print(table(figures))
    states, seconds = sum(f.states for f in found), sum(f.seconds for f in found)
    print(f"{states} states in {seconds:.0f} s of CPU time; {sum(bool(f.broken) for f in found)} scenes break a rule")
    return int(any(f.broken for f in found))


def search(name: str, plans: RememberedPlans, most: int) -> Figures:
    """Search one scene."""
    return Search(Space(SCENES[name], plans), most).run()


def table(figures: Figures) -> str:
    """The broken rules, and the command that replays the trace."""
    steps = "; ".join(figures.trace)
    rules = "\n".join(f"    {rule}" for rule in figures.broken)
    return f"{rules}\n    python -m tests.worlds.small_scope replay {figures.scene} '{steps}'"


def replayed(scene: str, trace: str) -> int:
    """Take the steps of a trace and print them."""
    space = Space(SCENES[scene], RememberedPlans())
    is_broken = False
    try:
        for name, broken in replay(space, [step for step in trace.split("; ") if step]):
            print(name)
            for rule in broken:
                print(f"    BROKEN: {rule}")
            is_broken |= bool(broken)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return int(is_broken)


def bugs(words: list[str]) -> int:
    """Plant one bug after the other and print the trace with which the search finds it."""
    chosen = [bug for bug in vars(small_scope).values() if isinstance(bug, Bug)]
    chosen = [bug for bug in chosen if not words or any(word in f"{bug.name} {bug.what}" for word in words)]
    plans, missed = RememberedPlans(), 0
    for bug in chosen:
        scene = bug.caught_by.partition("[")[2].removesuffix("]")
        is_of_plans = bug.target.startswith(("edl.model", "edl.planner"))
        with swapped(bug.target, bug.plant):
            figures = search(scene, RememberedPlans() if is_of_plans else plans, MOST)
        missed += not figures.broken
        print(f"{bug.what}: {figures.states} states, {len(figures.trace)} steps, {figures.seconds:.1f} s")
        print(table(figures) if figures.broken else "    MISSED", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} bugs are found")
    return int(missed > 0)


def _row(scene: object, *rest: object) -> str:
    return f"{scene:<28}" + "".join(f"{value:>11}" for value in rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
