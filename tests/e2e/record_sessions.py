"""Records docs/kubectl.md: what kubectl and edl print on a real control plane, command by command.

Run it with `make sessions`. Ages, times, UIDs and column widths differ between runs; `shape` removes them. A test
compares the shape of the document with that of a new recording.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.worlds.harness import ROOT, World
from tests.e2e.worlds.jobs import serving

DOCUMENT = ROOT / "docs" / "kubectl.md"
WAIT_S = 60.0
STEADY_S = 3.0
HEAD = """\
# What kubectl shows

Recorded by `make sessions` on a real API server with four nodes of 8 cpu each. kwok simulates their containers,
so nothing trains there. The output is unchanged; only the waits between commands are left out. `tj` is short for
`trainingjobs`.
"""

HUGE = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: huge}
spec:
  fault_tolerant: true
  trainer:
    entrypoint: "python train.py"
    min-instance: 2
    max-instance: 4
    resources: {requests: {cpu: "16", memory: 1Gi}}
"""

WIDE = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: wide}
spec:
  fault_tolerant: true
  trainer:
    entrypoint: "python train.py"
    min-instance: 2
    max-instance: 40
    resources: {requests: {cpu: "1", memory: 1Gi}}
"""
# Each of four nodes of 8 cpu holds one serving pod of 6 cpu, and the master of the job takes a part of one cpu.
LEFT_FOR_WIDE = 7


class Notebook:
    """Runs commands on one cluster and records their output, below a head."""

    def __init__(self, here: World, head: str = HEAD) -> None:
        self.here = here
        self._parts: list[str] = [head]
        programs = (here.kube.kubectl_path, Path(sys.executable))
        path = os.pathsep.join(str(program.parent) for program in programs if program is not None)
        self._environment = {
            **os.environ,
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(here.kube.kubeconfig),
            "HOME": str(here.plane.workdir),
            "COLUMNS": "118",
        }

    @property
    def text(self) -> str:
        """The document."""
        return "\n".join(self._parts)

    def title(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"## {text}\n")

    def say(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"{text}\n")

    def run(self, line: str, stdin: str = "") -> str:
        """Run a command and record its output."""
        done = subprocess.run(
            shlex.split(line),
            input=stdin,
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        typed = f"{line} <<END\n{stdin}END" if stdin else line
        self._show(typed, done.stdout)
        return done.stdout

    @contextmanager
    def watching(self, line: str) -> Iterator[None]:
        """Run a command that ends with Ctrl-C, while the block runs."""
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(shlex.split(line), env=self._environment, stdout=out, stderr=out)
            try:
                yield
            finally:
                process.terminate()
                process.wait()
            out.seek(0)
            self._show(line, f"{out.read()}^C\n")

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until the condition holds; nothing is recorded."""
        self.here.kube.wait_until(is_so, WAIT_S, what)

    def until_steady(self, name: str, phase: str, reason: str = "") -> None:
        """Wait until the status of a job has not changed for some seconds."""
        since, last = time.monotonic(), None

        def is_steady() -> bool:
            nonlocal since, last
            status = (self.here.kube.find("tj", name) or {}).get("status") or {}
            if status != last:
                since, last = time.monotonic(), status
            wanted = status.get("phase") == phase and reason in {"", status.get("reason")}
            return wanted and time.monotonic() - since > STEADY_S

        self.until(is_steady, f"{name} is {phase}")

    def _show(self, typed: str, printed: str) -> None:
        lines = [line.rstrip() for line in printed.rstrip().splitlines()]
        self._parts.append("\n".join(["```console", f"$ {typed}", *lines, "```", ""]))


def record(here: World) -> str:
    """Run all sessions and return the document."""
    book = Notebook(here)
    with here.controller:
        _create(book)
        _understand(book)
        _scale(book)
        _be_unschedulable(book)
        _be_refused(book)
        _suspend_and_delete(book)
        _make_way(book)
    return book.text


def _create(book: Notebook) -> None:
    book.title("Create a job and watch it grow")
    book.run("kubectl create -f example/examplejob.yaml")
    with book.watching("kubectl get tj -w"):
        book.until_steady("example", "Running", "AtMax")
    book.run("kubectl get tj")
    book.say("A pod is named after its role and index. The label `paddlepaddle.org/job` selects the pods of one job.")
    book.run("kubectl get pods -l paddlepaddle.org/job=example --sort-by=.metadata.name")


def _understand(book: Notebook) -> None:
    book.title("Why a job has this many trainers")
    book.say("`Explanation` gives the reason; conditions and events give the history.")
    book.run("kubectl describe tj example")
    book.run("kubectl get tj example -o jsonpath={.status.explanation}")
    book.say("`edl explain` gives the full account, and what the job needs to get more trainers:")
    book.run("edl explain example")
    book.say("`kubectl explain` describes every field:")
    book.run("kubectl explain tj.spec.trainer.min-instance")
    book.run("kubectl explain tj.spec.elasticity")


def _scale(book: Notebook) -> None:
    book.title("Pin the number of trainers, and unpin it")
    book.run("kubectl scale tj/example --replicas=3")
    book.until(lambda: book.here.running("example") == 3, "three trainers are left")
    book.until_steady("example", "Running", "Pinned")
    book.run("kubectl get tj")
    book.say("A number outside the job's bounds is refused; 0 unpins the job.")
    book.run("kubectl scale tj/example --replicas=9")
    book.run("kubectl scale tj/example --replicas=0")
    book.until_steady("example", "Running", "AtMax")
    book.run("kubectl get tj")


def _be_unschedulable(book: Notebook) -> None:
    book.title("A job that cannot start")
    book.run("kubectl create -f -", stdin=HUGE)
    book.until_steady("huge", "Pending", "Unschedulable")
    book.run("kubectl get tj")
    book.run("kubectl get tj huge -o jsonpath={.status.explanation}")
    book.run("kubectl delete tj huge")


def _be_refused(book: Notebook) -> None:
    book.title("What the API server rejects")
    book.say("A minimum above the maximum; a quantity that YAML reads as a number; the wrong namespace:")
    book.run("kubectl create -f -", stdin=HUGE.replace("min-instance: 2", "min-instance: 5"))
    book.run("kubectl create -f -", stdin=HUGE.replace('cpu: "16"', "cpu: 0.5"))
    book.run("kubectl create -n paddlecloud -f example/examplejob.yaml")
    book.say("Another image for a job that has pods:")
    book.run("""kubectl patch tj example --type merge -p '{"spec":{"image":"example/other"}}'""")


def _suspend_and_delete(book: Notebook) -> None:
    book.title("Suspend, resume, delete")
    book.run("""kubectl patch tj example --type merge -p '{"spec":{"suspend":true}}'""")
    book.until_steady("example", "Suspended")
    book.run("kubectl get tj,pods")
    book.run("""kubectl patch tj example --type merge -p '{"spec":{"suspend":false}}'""")
    book.until_steady("example", "Running", "AtMax")
    book.run("kubectl delete tj example")
    book.until(lambda: not book.here.pods(), "its pods are gone")
    book.run("kubectl get tj,pods")


def _make_way(book: Notebook) -> None:
    book.title("Serving pods preempt trainers")
    book.say("A job with trainers of 1 cpu fills the cluster. Then `web`, with serving pods of 6 cpu, is scaled up.")
    book.run("kubectl create -f -", stdin=WIDE)
    book.until_steady("wide", "Running", "InsufficientCapacity")
    book.run("kubectl get tj")
    book.run("kubectl get tj wide -o jsonpath={.status.explanation}")
    book.here.kube.create(serving(cpu="6"))
    book.run("kubectl scale deployment web --replicas=4")
    book.until(lambda: book.here.ready_serving() == 4, "serving is ready")
    book.until(lambda: book.here.running("wide") == LEFT_FOR_WIDE, "the job has the rest")
    book.until_steady("wide", "Running")
    book.run("kubectl get tj")
    book.say(
        "Trainers are deleted by kube-scheduler (`Preempted`), or by the controller if that is not enough"
        " (`ScaledDown`)."
    )
    columns = "custom-columns=:.reason,:.message"
    about = "--field-selector involvedObject.name=wide"
    book.run(f"kubectl get events {about} --sort-by=.lastTimestamp --no-headers -o {columns}")


AGE = re.compile(r"\b\d+(?:d\d+h|h\d+m|m\d+s|[smhd])\b")
SCRUBBED = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1VERSION"),
    (re.compile(r"\bsmall-\d\b"), "NODE"),
    (AGE, "AGE"),
    (re.compile(r"AGE \(x\d+ over AGE\)"), "AGE"),
    (re.compile(r"[ \t]+"), " "),
)
# kube-scheduler decides which other events a wave has, and in how many steps.
ALWAYS_EMITTED = ("Admitted", "Preempted")


def shape(document: str) -> list[str]:
    """A document without what differs between runs.

    Of a watch only the head and the last line are kept, of events only the reasons that always occur.
    """
    blocks = re.split(r"(?m)^```", document)
    return [line for block in blocks for line in _shape_of(block)]


def _shape_of(block: str) -> list[str]:
    for pattern, word in SCRUBBED:
        block = pattern.sub(word, block)
    # Events of the same second have no order.
    given = [line.strip() for line in block.splitlines() if line.strip("- ")]
    lines = sorted(given, key=lambda line: line if line.startswith(("Normal ", "Warning ")) else "")
    if lines and lines[-1] == "^C":
        return [*lines[:3], lines[-2]]
    if len(lines) > 1 and lines[1].startswith("$ kubectl get events"):
        return [*lines[:2], *sorted({word for line in lines[2:] for word in ALWAYS_EMITTED if line.startswith(word)})]
    return lines


def main() -> int:
    """Record the document."""
    ensure_binaries()
    with tempfile.TemporaryDirectory(prefix="edl-sessions-") as folder, start(Path(folder)) as plane:
        DOCUMENT.write_text(record(World(plane)), encoding="utf-8")
    print(f"recorded {DOCUMENT.relative_to(ROOT)}")
    return 0


def start(folder: Path) -> ControlPlane:
    """The control plane of the sessions."""
    return ControlPlane.start(folder, nodes="small", settings=Settings())


if __name__ == "__main__":
    sys.exit(main())
