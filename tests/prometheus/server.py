"""A Prometheus process that scrapes what a file lists, and what it answers."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.processes import die_with_parent

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
_START_S = 60.0


class Prometheus:
    """One server.

    Args:
        folder: for its configuration, its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.targets = folder / "targets.json"
        self.set_targets([])

    def set_targets(self, targets: list[dict[str, Any]]) -> None:
        """What it scrapes from now on: (targets, labels) as Prometheus reads them from a file."""
        written = self.targets.with_suffix(".new")
        written.write_text(json.dumps(targets))
        written.rename(self.targets)

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of an answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query.

        Raises:
            AssertionError: Prometheus refuses the expression.
        """
        try:
            data = self.ask("query", query=expression)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        found: list[dict[str, Any]] = data["result"]
        return found

    def values(self, expression: str, since_s: float) -> list[str]:
        """Every value of the expression in each second since then, of all its series; without NaN."""
        found = [value for series in self.series(expression, since_s) for _, value in series["values"]]
        return [value for value in found if value != "NaN"]

    def series(self, expression: str, since_s: float, step_s: int = 1) -> list[dict[str, Any]]:
        """Every series of the expression since then, with a value for each step: `metric` and `values`."""
        until_s = self.now_s()
        data = self.ask("query_range", query=expression, start=f"{since_s}", end=f"{until_s}", step=str(step_s))
        found: list[dict[str, Any]] = data["result"]
        return found

    def now_s(self) -> float:
        """Its clock, which is that of this machine."""
        return time.time()

    def is_ready(self) -> bool:
        """True once it answers queries."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, every_s: int = 1) -> Iterator[Prometheus]:
    """A server that scrapes every so many seconds and evaluates the rules of deploy/ as often."""
    server = Prometheus(folder)
    file_sd = [{"files": [str(server.targets)], "refresh_interval": "1s"}]
    scrapes = [{"job_name": "edl", "honor_labels": True, "file_sd_configs": file_sd}]
    every = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{every_s}s")
    configuration = folder / "prometheus.yml"
    configuration.write_text(yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": scrapes}))
    command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{server.port}", "--log.level=warn"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
    try:
        deadline_s = time.monotonic() + _START_S
        while not server.is_ready():
            log_end = (folder / "prometheus.log").read_text()[-2000:]
            assert process.poll() is None, f"prometheus has ended: {log_end}"
            assert time.monotonic() < deadline_s, f"prometheus is not ready: {log_end}"
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(30)
