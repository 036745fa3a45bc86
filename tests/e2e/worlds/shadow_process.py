"""`edl shadow` as a process beside a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from edl.shadow.document import Report
from tests.e2e.worlds.forked import Forked
from tests.worlds.waiting import PATIENCE

WITHIN_S = 60.0


class ShadowError(Exception):
    """It did not start or end as it should; the message ends with its log."""


class ShadowProcess:
    """`edl shadow` with a report each second; use it as a context manager, which ends it with SIGTERM.

    Args:
        kubeconfig: its credentials.
        out: the folder of its reports.
        flags: more flags.
    """

    def __init__(self, kubeconfig: Path, out: Path, *flags: str) -> None:
        self.kubeconfig, self.out, self.flags = kubeconfig, out, flags
        self.log = out.with_name(f"{out.name}.log")
        self._process: Forked | None = None

    def start(self) -> ShadowProcess:
        """Start it and wait for its first report."""
        self.path.unlink(missing_ok=True)  # of the run before
        command = ("shadow", "--kubeconfig", str(self.kubeconfig), "--out", str(self.out), "--report-every", "1s")
        with self.log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            self._process = Forked("edl", *command, *self.flags, environment=os.environ, files=files)
        deadline = time.monotonic() + WITHIN_S * PATIENCE
        while not self.path.exists():
            if self._process.poll() is not None:
                raise ShadowError(f"it ended with {self._process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ShadowError(f"no report\n{self.tail()}")
            time.sleep(0.05)
        return self

    @property
    def path(self) -> Path:
        """Its report as JSON."""
        return self.out / "report.json"

    def report(self) -> Report:
        """The last report."""
        return Report.model_validate_json(self.path.read_bytes())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Report:
        """Send it a signal and return the last report.

        Raises:
            ShadowError: it did not exit with 0.
        """
        assert self._process is not None
        os.kill(self._process.pid, number)
        return self.wait()

    def wait(self) -> Report:
        """Wait until it ends by itself and return the last report.

        Raises:
            ShadowError: it did not exit with 0.
        """
        assert self._process is not None
        try:
            code = self._process.wait(WITHIN_S * PATIENCE)
        except subprocess.TimeoutExpired:
            raise ShadowError(f"it does not end\n{self.tail()}") from None
        if code:
            raise ShadowError(f"it ended with {code}\n{self.tail()}")
        return self.report()

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def __enter__(self) -> ShadowProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if error is not None:
            print(self.tail())
