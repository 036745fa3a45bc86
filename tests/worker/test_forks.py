"""A process that a trainer forks has no lock that a thread of edl held at the fork."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edl.errors import ConfigError, TemporaryError
from edl.worker.connection import MasterConnection
from edl.worker.forks import LIBRARY_CALL, ForkGate
from edl.worker.session import MasterSession
from tests.worlds.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


class Library:
    """A call of a library that holds a lock of its own until a fork begins, or for long if none can begin."""

    def __init__(self) -> None:
        self.lock, self.is_called, self.fork_begins = threading.Lock(), threading.Event(), threading.Event()

    def call(self, *_: object, **__: object) -> None:
        with self.lock:
            self.is_called.set()
            self.fork_begins.wait(5.0 * PATIENCE)
            time.sleep(0.2)  # a fork that does not wait happens within it
        raise OSError("the library has ended")


def exit_code_of_a_fork(child: Callable[[], int]) -> int:
    """What a child of this process exits with; it ends itself."""
    pid = os.fork()
    if not pid:
        code = 99
        try:
            code = child()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def has_lock(library: Library) -> int:
    """What a child exits with: 0 if it gets the lock of the library, 1 if it would wait forever."""
    return 0 if library.lock.acquire(timeout=3.0) else 1


def check_no_lock_is_inherited(library: Library, work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    assert library.is_called.wait(10.0 * PATIENCE)
    library.fork_begins.set()
    assert exit_code_of_a_fork(lambda: has_lock(library)) == 0
    thread.join()


def request(url: str) -> None:
    with pytest.raises(TemporaryError, match="the library has ended"):
        MasterConnection(url, "token").call("GET", "/v1/status", None, 5.0)


def test_a_fork_waits_for_a_name_that_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(socket, "getaddrinfo", library.call)
    check_no_lock_is_inherited(library, lambda: request("http://master:80"))


def test_a_fork_waits_for_certificates_that_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ssl, "create_default_context", library.call)
    check_no_lock_is_inherited(library, lambda: request("https://master:443"))


def test_a_fork_does_not_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master may hold a request for long."""
    waits, ends = threading.Event(), threading.Event()

    def answer(_: object) -> None:
        waits.set()
        ends.wait(10.0 * PATIENCE)
        raise OSError("the library has ended")

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", answer)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=request, args=(f"http://127.0.0.1:{server.getsockname()[1]}",))
        thread.start()
        assert waits.wait(10.0 * PATIENCE)
        assert exit_code_of_a_fork(lambda: 0 if not ends.is_set() else 1) == 0
        ends.set()
        thread.join()


def test_a_thread_may_enter_again_while_a_fork_waits_for_it_and_a_child_enters_freely() -> None:
    entered, seen = threading.Event(), []

    def work() -> None:
        with LIBRARY_CALL:
            entered.set()
            wait_until(lambda: bool(LIBRARY_CALL._forks), "a fork waits", 10)
            with LIBRARY_CALL:
                seen.append("inner")
            seen.append("outer")

    def child() -> int:
        with LIBRARY_CALL:
            return exit_code_of_a_fork(lambda: len(seen))

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    assert exit_code_of_a_fork(child) == 2, "the fork came after both"
    thread.join()
    with LIBRARY_CALL:
        pass


def test_a_thread_that_is_in_it_may_fork_itself() -> None:
    with LIBRARY_CALL, LIBRARY_CALL:
        assert exit_code_of_a_fork(lambda: 0) == 0


def test_a_thread_waits_while_another_forks() -> None:
    gate, seen = ForkGate(), []

    def work() -> None:
        with gate:
            seen.append("entered")

    gate._close()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.2)
    assert not seen
    gate._open()
    thread.join()
    assert seen == ["entered"]


SCRIPT = """
import multiprocessing, sys
from edl.worker import connect
connect("http://master:80", token="x", environment={"POD_NAME": "a"})
multiprocessing.get_context(sys.argv[1]).Process(target=print, args=("read",)).start()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_imports_a_script_without_a_guard_does_not_train(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(tmp_path / "train.py"), method]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60 * PATIENCE, check=True
    )
    assert "would train once more under the name of this trainer" in ended.stderr
    assert 'if __name__ == "__main__":' in ended.stderr
    assert "read" not in ended.stdout


def connected_in_a_child() -> None:
    MasterSession(MasterConnection("http://master:80", "x"), {})


def test_a_process_that_multiprocessing_has_begun_may_train() -> None:
    child = multiprocessing.get_context("spawn").Process(target=connected_in_a_child)
    child.start()
    child.join(60 * PATIENCE)
    assert child.exitcode == 0


def test_the_sentence_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.process.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match="imports the script"):
        connected_in_a_child()
