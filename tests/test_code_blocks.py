"""Every block of code in the documents is checked: commands by their programs, the others by their readers.

What a command prints is run here or by the test of the guides, generated, or recorded by a target; `OUTPUTS` says
which for each page.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import typer
import yaml

from edl.api.crd import render_schema
from edl.api.v1 import parse_job
from edl.cli.app import app
from edl.cli.main import main
from edl.model.limits import Limits
from edl.settings.commands import COMMANDS, settings_of
from edl.settings.flags import declarations
from tests.test_how_to_guides import RUN

ROOT = Path(__file__).parents[1]
SKIPPED = ("docs/reference",)  # generated and compared
PAGES = sorted(
    page
    for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
    if page.name != "CHANGELOG.md" and not any(page.is_relative_to(ROOT / folder) for folder in SKIPPED)
)
FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<kind>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$")
LANGUAGES = {"sh", "console", "text", "yaml", "python", "json", "mermaid"}
# Pages with output that the test of the how-to guides does not run, and what holds it.
OUTPUTS = {
    "README.md": "an example of what docs/kubectl.md records",
    "docs/architecture.md": "a drawing",
    "docs/benchmarks.md": "printed by the command above it, which takes minutes to hours",
    "docs/certificate.md": "printed by the command above it; the numbers are those of one cluster",
    "docs/controller.md": "a drawing",
    "docs/embedded-server.md": "printed by the command above it",
    "docs/kubectl.md": "recorded by `make sessions`, compared by tests/e2e/test_sessions.py",
    "docs/master.md": "printed by the commands above it; the numbers are those of one run",
    "docs/plan.md": "run below, on clusters of tests/explain",
    "docs/reviews/security.md": "a drawing",
    "docs/simulator.md": "tests/sim/test_scenario_file.py compares this message",
    "docs/troubleshooting.md": "tests/test_docs.py compares each message with the code",
    "docs/tutorial.md": "printed by `make example` and `make real-missions`; times differ from run to run",
    "docs/tutorial-paddle.md": "printed by `make ctr`; it needs Paddle",
    "docs/tutorial-torch.md": "printed by the commands above it; `make torch-test` plays the same with PyTorch",
    "docs/volcano-sessions.md": "recorded by `make volcano-sessions`, compared by tests/volcano/test_sessions.py",
    "docs/kueue-sessions.md": "recorded by `make kueue-sessions`, compared by tests/kueue/test_sessions.py",
    "docs/without-kubectl.md": "tests/cli/test_jobs.py compares these lines",
    "docs/how-to/add-a-flag.md": "printed once the flag of the guide is added",
    "docs/how-to/get-the-trained-model-out.md": "`make torch-test` plays the same; it needs PyTorch",
    "docs/how-to/nodes-on-demand.md": "`make karpenter-test` plays the same; times differ from run to run",
    "docs/how-to/queues-for-teams.md": "its tables of queues were printed on a sandbox's API server",
}
# Programs that are not edl's; their arguments are checked only for the repository's files.
FOREIGN = {
    "kubectl",
    "docker",
    "helm",
    "curl",
    "head",
    "base64",
    "cat",
    "grep",
    "sed",
    "ls",
    "cd",
    "export",
    "apt-get",
}
FOREIGN |= {"crictl", "git", "sort", "kill", "pgrep", "xargs", "peer/bin/pip", ".venv-torch/bin/torchrun"}
GUIDED_FLAGS = {"--last"}  # docs/how-to/add-a-flag.md adds it
MODULE_RUNNERS = ("python", "python3", ".venv/bin/python", ".venv-torch/bin/python", ".venv-ctr/bin/python")
OUR_FILES = re.compile(r"^(?:docs|deploy|example|tests|benchmarks|crds|edl|tools)/[\w./-]+$")
USAGE_ERROR: Any = typer.BadParameter.__base__  # typer has a copy of click and does not export this class
ASSIGNMENT = re.compile(r"^[A-Z_]+=")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its language, its text, and the line at which it begins."""

    page: str
    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(kind: str = "") -> list[Block]:
    """The blocks of all pages, or those of one language."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for one in FENCE.finditer(text):
            line = text.count("\n", 0, one.start()) + 1
            found.append(Block(str(page.relative_to(ROOT)), one["kind"], dedent(one["text"]), line))
    return [one for one in found if not kind or one.kind == kind]


def commands(block: Block) -> Iterator[list[str]]:
    """Each command of a shell block as its words; of a console block, only what follows a prompt."""
    lines = block.text.split("\n")
    if block.kind in {"console", "text"}:
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    pending = ""
    for line in lines:
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        try:
            words = _words(pending)
        except ValueError:  # a quotation goes on in the next line
            pending += " "
            continue
        pending = ""
        yield from words
    assert not pending.strip(), f"{block}: a quotation has no end"


def _words(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word and set(word) <= set("|&;()"):
            parts.append([])
        else:
            parts[-1].append(word)
    parts = [without_redirections(part) for part in parts]
    stripped = (part[next((i for i, w in enumerate(part) if not ASSIGNMENT.match(w)), len(part)) :] for part in parts)
    return [part for part in stripped if part]


def without_redirections(words: list[str]) -> list[str]:
    """A command without `> FILE`, `2> FILE` and `< FILE`."""
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if word and set(word) <= set("<>"):
            kept = kept[:-1] if kept[-1:] == ["2"] else kept
        elif not before or not set(before) <= set("<>"):
            kept.append(word)
    return kept


@cache
def targets() -> frozenset[str]:
    """The targets of the Makefile that a user may name."""
    named = re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text())
    return frozenset([*named, ".venv/.installed", ".venv/.sandbox", ".venv-torch/.installed"])


def problem_of(words: list[str]) -> str:
    """What is wrong with a command; empty if nothing is."""
    program, rest = words[0], words[1:]
    files = [
        word for before, word in zip(words, rest, strict=False) if program != "kubectl" or before in {"-f", "-k"}
    ]
    for path in (word.partition("::")[0].rstrip("/") for word in files):
        if OUR_FILES.match(path) and not (ROOT / path).exists():
            return f"{path} does not exist"
    if program in {"edl", ".venv/bin/edl", ".venv-torch/bin/edl", ".venv-ctr/bin/edl"}:
        return problem_of_edl(rest)
    if program == "make":
        unknown = [word for word in rest if "=" not in word and not word.startswith("-") and word not in targets()]
        return f"no target {unknown}" if unknown else ""
    if program in MODULE_RUNNERS:
        return problem_of_module(rest)
    return "" if program in FOREIGN else f"{program} is not a known program"


def problem_of_module(rest: list[str]) -> str:
    """What is wrong with the arguments of Python."""
    if rest[:1] != ["-m"]:
        return ""  # a script of the reader
    return "" if importlib.util.find_spec(rest[1]) else f"no module {rest[1]}"


def problem_of_edl(words: list[str]) -> str:
    """What edl says about these arguments; nothing is run."""
    command: Any = typer.main.get_command(app())
    context = command.make_context("edl", ["plan"])
    name, rest = (words or [""])[0], words[1:]
    if name in {"--help", "--version", "--install-completion", "--show-completion"}:
        return ""
    found = command.get_command(context, name)
    if found is None:
        return f"edl has no command {name}"
    if rest and rest[0] in getattr(found, "commands", {}):
        found, rest = found.commands[rest[0]], rest[1:]
    if "--help" in rest:
        return ""
    try:
        found.make_context(name, list(rest))
    except USAGE_ERROR as error:
        message = error.format_message()
        return "" if any(flag in message for flag in GUIDED_FLAGS) else message
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_names_its_language(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    assert [str(one) for one in blocks() if one.page == name and one.kind not in LANGUAGES] == []


@pytest.mark.parametrize("block", [one for kind in ("sh", "console") for one in blocks(kind)], ids=str)
def test_a_command_names_programs_flags_targets_and_files_that_exist(block: Block) -> None:
    assert [(words, problem) for words in commands(block) if (problem := problem_of(words))] == []


def test_a_command_in_a_sentence_has_flags_that_exist() -> None:
    known = {
        spelling for command in COMMANDS for one in declarations(settings_of(command)) for spelling in one.spellings
    }
    for page in PAGES:
        for span in re.findall(r"`(edl [a-z][^`\n]*)`", FENCE.sub("", page.read_text())):
            flags = set(re.findall(r"(?<=\s)--[a-z][a-z-]+", span))
            assert flags <= known | GUIDED_FLAGS | {"--help", "--install-completion"}, f"{page.name}: {span}"


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_can_be_read_and_imports_what_exists(block: Block) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"edl", "tests", "example"}:
            source = ROOT / f"{str(node.module).replace('.', '/')}.py"
            file = source if source.exists() else source.with_suffix("") / "__init__.py"
            assert {name.name for name in node.names} <= set(re.findall(r"\w+", file.read_text())), file


@pytest.mark.parametrize(
    ("page", "scripts"),
    [
        ("docs/tutorial-torch.md", ("torch_elastic/before.py", "torch_elastic/train.py")),
        ("docs/tutorial-paddle.md", ("ctr/train.py",)),
    ],
)
def test_a_tutorial_quotes_its_scripts(page: str, scripts: tuple[str, ...]) -> None:
    sources = [dedented((ROOT / "example" / script).read_text()) for script in scripts]
    quoted = [dedented(one.text) for one in blocks("python") if one.page == page]
    assert quoted
    assert [text for text in quoted if not any(text in source for source in sources)] == []


def dedented(text: str) -> str:
    """A text without the spaces at the beginnings of its lines."""
    return re.sub(r"(?m)^ +", "", text)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_what_edl_or_kubernetes_reads(block: Block) -> None:
    for document in yaml.safe_load_all(block.text):
        if isinstance(document, dict) and document.get("kind") == "TrainingJob":
            parse_job(document)
        elif isinstance(document, dict) and set(document) == {"spec"}:
            assert unknown_fields(document["spec"], render_schema()["properties"]["spec"]) == []
    flags = re.findall(r"value: (--[a-z-]+)=", block.text)
    known = {spelling for one in declarations(settings_of(COMMANDS[0])) for spelling in one.spellings}
    assert set(flags) <= known


def unknown_fields(value: object, schema: Any, path: str = "spec") -> list[str]:
    """The fields of a value that a schema does not have."""
    if isinstance(value, list):
        return [bad for one in value for bad in unknown_fields(one, schema.get("items", {}), path)]
    if not isinstance(value, dict) or "properties" not in schema or "x-kubernetes-preserve-unknown-fields" in schema:
        return []
    inner = schema["properties"]
    missing = [f"{path}.{key}" for key in value if key not in inner]
    return missing + [
        bad for key in value if key in inner for bad in unknown_fields(value[key], inner[key], f"{path}.{key}")
    ]


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


def outputs() -> set[str]:
    """The pages with output that no test of the guides runs."""
    found = set()
    for page in PAGES:
        text = page.read_text()
        rest = RUN.sub("", text) if page.parent.name == "how-to" else text
        if any(one["kind"] in {"text", "console"} for one in FENCE.finditer(rest)):
            found.add(str(page.relative_to(ROOT)))
    return found


def test_every_output_is_run_or_its_page_says_what_holds_it() -> None:
    assert outputs() == set(OUTPUTS)


EXPLAIN = ROOT / "tests" / "explain"
SERVING = f"-f {EXPLAIN}/plan/serving-takes-room-back.input.yaml"
NEW = f"-f {EXPLAIN}/whatif/a-new-job-takes-its-share.cluster.yaml"
NEW = f"{NEW} {NEW.replace('cluster.yaml', 'change.yaml')}"
IN_THE_WAY = f"-f {ROOT}/docs/how-to/in-the-way.yaml"
PLAN_COMMANDS = (
    f"plan {SERVING}",
    f"plan {SERVING} -o wide",
    f"plan {IN_THE_WAY}",
    f"plan {NEW}",
    f"explain ctr -n ads {NEW}",
    f"explain tagger -n ads -f {ROOT}/docs/how-to/goodput.yaml --policy goodput --now 2026-01-05T09:00:00Z",
)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str) -> str:
    """What edl prints, on one line: without spaces at ends of lines, names of folders and seconds."""
    monkeypatch.setattr(sys, "argv", ["edl", *command.split()])
    with pytest.raises(SystemExit):
        main()
    captured = capsys.readouterr()
    return comparable(captured.out + captured.err)


def comparable(text: str) -> str:
    """A text as one line, without seconds and with one name for the saved cluster."""
    text = re.sub(r"\S*a-new-job-takes-its-share\.cluster\.yaml", "now.yaml", text)
    return " ".join(re.sub(r"(?m), [0-9.]+ s$", "", re.sub(r"(?m) +$", "", text)).split())


def test_the_outputs_of_the_page_of_edl_plan_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edl.settings.shared.Limits", partial(Limits, deadline_s=3600.0))  # on a busy machine, too
    found = [printed(monkeypatch, capsys, command) for command in PLAN_COMMANDS]
    shown = [comparable(one.text) for one in blocks("text") if one.page == "docs/plan.md"]
    assert len(shown) > 5
    missing = [text for text in shown if not any(text in output for output in found)]
    assert [text[:9] for text in missing] == ["decision-"]  # a replay; tests/cli/test_replay.py compares its line


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("edl plan -f now.yaml --no-such-flag", "No such option"),
        ("edl no-such-command", "no command"),
        ("make no-such-target", "no target"),
        ("python -m benchmarks.no_such_module", "no module"),
        ("kubectl apply -f deploy/no-such-file.yaml", "does not exist"),
        ("unheard-of --flag", "not a known program"),
        ("A=1 edl plan -f now.yaml | edl replay records", ""),
    ],
)
def test_a_wrong_command_is_found(command: str, problem: str) -> None:
    found = " ".join(problem_of(words) for words in commands(Block("page", "sh", command, 1)))
    assert problem in found
    assert bool(found.strip()) is bool(problem)
