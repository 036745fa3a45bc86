"""The console script: list of commands, lazy imports, missing modules, wrong usage."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edl import __version__
from edl.settings.commands import COMMANDS
from tests.cli.conftest import Run


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"edl {__version__}\n", "")


def test_help_lists_every_command_with_its_whole_summary(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    listed = [line.split(maxsplit=1) for line in out.partition("Commands:\n")[2].splitlines()]
    assert listed == [[one.name, one.summary] for one in COMMANDS if " " not in one.name]


def test_help_imports_neither_the_planner_nor_a_client() -> None:
    done = python(
        "import sys; sys.argv = ['edl', '--help']\n"
        "from edl.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'scipy', 'numpy', 'kubernetes', 'aiohttp', 'msgspec', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_value_is_reported_without_importing_the_planner() -> None:
    done = python(
        "import sys; sys.argv = ['edl', 'controller', '--interval-s', 'soon']\n"
        "from edl.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert ended.code == 2\n"
        "heavy = {'scipy', 'numpy', 'kubernetes', 'aiohttp', 'yaml'} & set(sys.modules)\n"
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("edl: --interval-s 'soon': ")


@pytest.mark.parametrize("module", ["edl.cli.app", "edl.settings.plan", "edl.cli.plan", "edl.api.status"])
def test_an_interrupt_while_modules_load_ends_the_command_without_a_word(module: str) -> None:
    done = python(
        "import os, signal, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name != {module!r}: return\n"
        "        try: os.kill(os.getpid(), signal.SIGINT)\n"
        "        except KeyboardInterrupt as error: raise ValueError('as pydantic does') from error\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.argv = ['edl', 'plan', '-f', '/dev/null']\n"
        "from edl.cli.main import main\n"
        "main()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_that_runs_is_interrupted_as_python_does_it_and_an_ignored_signal_stays_ignored() -> None:
    code = (
        "import os, signal, sys, types\n"
        "def interrupted(settings):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('goes on')\n"
        "sys.modules['edl.cli.plan'] = types.SimpleNamespace(plan=interrupted)\n"
        "sys.argv = ['edl', 'plan', '-f', '/dev/null']\n"
        "from edl.cli.main import main\n"
        "try: main()\n"
        "finally: print(signal.getsignal(signal.SIGINT) is {})"
    )
    raised = python(code.format("signal.default_int_handler"))
    assert (raised.returncode, raised.stdout, raised.stderr) == (130, "True\n", "")
    ignored = python("import signal; signal.signal(2, signal.SIG_IGN)\n" + code.format("signal.SIG_IGN"))
    assert (ignored.returncode, ignored.stdout, ignored.stderr) == (0, "goes on\nTrue\n", "")


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("typer", ["--help"]),
        ("typer", []),
        ("pydantic", ["plan", "-f", "x"]),
        ("msgspec", ["plan", "-f", "x"]),
        ("scipy", ["plan", "-f", "x"]),
    ],
)
def test_a_missing_module_is_named_with_the_extra_to_install(missing: str, arguments: list[str]) -> None:
    done = python(
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['edl', *{arguments!r}]\n"
        "from edl.cli.main import main\n"
        "main()"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"edl: the Python module {missing}")
    assert "pip install '.[controller]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "edl: --filename is missing; put -f before each file: edl plan -f now.yaml"),
        (["plan", "now.yaml"], "edl: --filename is missing; put -f before each file: edl plan -f now.yaml"),
        (["plan", "-f", "now.yaml", "extra"], "unexpected extra argument"),
        (["plan", "--frobnicate"], "No such option"),
        (["explain"], "edl: JOB is missing; give the name of a TrainingJob, such as ctr or ads/ctr"),
        (["replay"], "edl: RECORD is missing; give the path of a record, or of a folder of records"),
        (["audit"], "edl: JOURNAL is missing; give the folder that edl master --journal was given"),
        (["master", "status", "http://here"], "edl: --token-file is missing; give the path of a file"),
        (["master"], "edl: --journal is missing; give the path of a folder, such as ./journal"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_to_give(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(("command", "kind"), [("crd", "CustomResourceDefinition"), ("manifests", "Deployment")])
def test_generated_files_are_printed(run: Run, command: str, kind: str) -> None:
    code, out, err = run(command)
    assert (code, err) == (0, "")
    assert f"kind: {kind}" in out
    assert out.endswith("\n")
