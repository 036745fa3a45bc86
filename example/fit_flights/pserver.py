"""An asynchronous parameter server in one file: it holds a part of the weights, and gradients change them.

Part i of n holds the weights i, i + n, i + 2n, ... A trainer calls it whenever it has a gradient; trainers do not
wait for each other.

    GET  /weights                   the weights of this part, float32
    POST /push?by=NAME&seq=N        apply a gradient, float32; the answer is the new weights
    POST /save?number=N             save this state as checkpoint N, here and at the next part
    POST /load?number=N             return to checkpoint N; 0 is the start
    GET, PUT /copy?part=I&number=N  a checkpoint of another part

Each trainer numbers its pushes, and a repeated push is applied once. A restarted server loads the checkpoint that the
master has committed, and makes the other parts load it too: the weights and the master's ledger then cover the same
records.
"""

from __future__ import annotations

import http.client
import io
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

from edl.errors import EdlError
from edl.worker.job import connect

RATE, FIRST_SQUARE = 0.1, 1e-6
KEPT = 3
TIMEOUT_S = 5.0


class Part:
    """A part of the weights, trained by Adagrad (Duchi, Hazan and Singer, 2011).

    Args:
        index: of the part, from 0.
        size: number of weights of all parts together.
        folder: for checkpoints.
        peers: HOST:PORT of all parts, including this one.
        rate: how far the first gradient moves a weight.
    """

    def __init__(self, index: int, size: int, folder: Path, peers: list[str], rate: float = RATE) -> None:
        self.index, self.folder, self.peers, self.rate = index, folder, peers, rate
        self.lock = threading.Lock()
        self._length = len(range(index, size, len(peers)))
        self._reset()

    def _reset(self) -> None:
        self.weights = np.zeros(self._length, np.float32)
        self.squares = np.full(self._length, FIRST_SQUARE, np.float32)
        self.last: dict[str, int] = {}  # the last push of each trainer
        self.pushes = 0  # how many pushes have changed these weights

    def push(self, by: str, seq: int, gradient: bytes) -> bytes:
        """Apply a gradient, unless this push was applied before; returns the weights."""
        step = np.frombuffer(gradient, np.float32)
        with self.lock:
            if seq > self.last.get(by, 0):
                self.squares += step * step
                self.weights -= self.rate * step / np.sqrt(self.squares)
                self.last[by] = seq
                self.pushes += 1
            return self.weights.tobytes()

    def save(self, number: int) -> None:
        """Save this state, and send a copy to the next part, because a machine may be lost together with its disk."""
        state = io.BytesIO()
        with self.lock:
            np.savez(
                state,
                weights=self.weights,
                squares=self.squares,
                names=np.array(list(self.last), "U"),
                seqs=np.array(list(self.last.values()), np.int64),
                pushes=np.array(self.pushes),
            )
        self.store(self.index, number, state.getvalue())
        neighbour = (self.index + 1) % len(self.peers)
        if neighbour != self.index:
            call(self.peers[neighbour], "PUT", f"/copy?part={self.index}&number={number}", state.getvalue())

    def load(self, number: int) -> None:
        """Return to a checkpoint; 0 is the start.

        Raises:
            FileNotFoundError: neither this part nor the next one has it.
        """
        state = self._find(number) if number else None
        with self.lock:
            self._reset()
            if state is not None:
                with np.load(io.BytesIO(state)) as saved:
                    self.weights, self.squares = saved["weights"], saved["squares"]
                    self.last = dict(zip(saved["names"].tolist(), saved["seqs"].tolist(), strict=True))
                    self.pushes = int(saved["pushes"])
        for path in self.folder.glob("part-*.npz"):
            if int(path.stem.rpartition("-")[2]) > number:
                path.unlink(missing_ok=True)  # never committed, or undone by a restore
        log(f"part {self.index}: loaded checkpoint {number}, after {self.pushes} pushes")

    def store(self, part: int, number: int, state: bytes) -> None:
        """Write a checkpoint, completely or not at all, and delete the oldest ones."""
        path = self.path(part, number)
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        for old in sorted(self.folder.glob(f"part-{part}-*.npz"))[:-KEPT]:
            old.unlink(missing_ok=True)

    def path(self, part: int, number: int) -> Path:
        """The file of a checkpoint."""
        return self.folder / f"part-{part}-{number:012d}.npz"

    def _find(self, number: int) -> bytes:
        path = self.path(self.index, number)
        if path.exists():
            return path.read_bytes()
        neighbour = self.peers[(self.index + 1) % len(self.peers)]
        try:
            return call(neighbour, "GET", f"/copy?part={self.index}&number={number}")
        except OSError as error:
            raise FileNotFoundError(
                f"checkpoint {number} of part {self.index} is lost: it is neither in {path} nor at {neighbour}; give"
                " the pservers a volume (CHECKPOINT_DIR), or run at least two pservers"
            ) from error


class Server(ThreadingHTTPServer):
    """Serves one part.

    Args:
        part: the part to serve.
        port: to listen on, at every address of this machine.
    """

    def __init__(self, part: Part, port: int) -> None:
        super().__init__(("", port), Handler)
        self.part = part

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 the base's
        """Log one line: a trainer was killed during a request, or the disk is full."""
        log(f"a request from {client_address} failed: {sys.exception()!r}")


class Handler(BaseHTTPRequestHandler):
    """Handles the requests to a server."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # send an answer as one packet

    def do_GET(self) -> None:
        """Send the weights, or a checkpoint of another part."""
        query = self._query()
        if self.path == "/weights":
            self._answer(self.server.part.weights.tobytes())
        else:
            path = self.server.part.path(int(query["part"]), int(query["number"]))
            self._answer(path.read_bytes()) if path.exists() else self._answer(b"", 404)

    def do_POST(self) -> None:
        """Push, save or load."""
        query, body = self._query(), self._body()
        if self.path.startswith("/push?") and len(body) == self.server.part.weights.nbytes:
            self._answer(self.server.part.push(query["by"], int(query["seq"]), body))
        elif self.path.startswith("/save?"):
            self.server.part.save(int(query["number"]))
            self._answer(b"")
        elif self.path.startswith("/load?"):
            try:
                self.server.part.load(int(query["number"]))
            except FileNotFoundError as error:
                self.log_error("%s", error)
                self._answer(b"", 404)
            else:
                self._answer(b"")
        else:
            self._answer(b"", 400)

    def do_PUT(self) -> None:
        """Store a checkpoint of another part."""
        query = self._query()
        self.server.part.store(int(query["part"]), int(query["number"]), self._body())
        self._answer(b"")

    def _query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Pushes", str(self.server.part.pushes))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Log nothing: one line for each push is too much."""


def call(peer: str, method: str, path: str, body: bytes = b"") -> bytes:
    """Send one request to a part; returns the body of the answer.

    Raises:
        OSError: there was no answer, or its status is not 200.
    """
    connection = http.client.HTTPConnection(peer, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        data = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{peer}: {method} {path}: {error!r}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise OSError(f"{peer}: {method} {path}: status {answer.status}")
    return data


def log(line: str) -> None:
    """Print a line at once, for `kubectl logs`."""
    print(line, flush=True)


def serve(size: int, rate: float = RATE) -> None:
    """Serve one part until SIGTERM, then save the model."""
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # this thread waits for them below
    peers, index = os.environ["PADDLE_PSERVERS"].split(","), int(os.environ["PADDLE_PSERVER_ID"])
    folder = Path(os.environ.get("CHECKPOINT_DIR", "/tmp/checkpoints"))  # noqa: S108 a container's own
    folder.mkdir(parents=True, exist_ok=True)
    part = Part(index, size, folder, peers, rate)
    load_committed(part)
    server = Server(part, int(peers[index].rpartition(":")[2]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log(f"part {index} of {len(peers)}: serving {len(part.weights)} weights on port {server.server_port}")
    signal.sigwait(ends)
    save_all(part)


def load_committed(part: Part) -> None:
    """Load the checkpoint that the master has committed, and make the other parts load it too."""
    committed = connect().status()["checkpoint"]
    number = int(committed["id"]) if committed else 0
    try:
        part.load(number)
    except FileNotFoundError as error:
        sys.exit(str(error))
    for index, peer in enumerate(part.peers):
        if index != part.index:
            try:
                call(peer, "POST", f"/load?number={number}")
            except OSError as error:
                log(f"part {index}: no answer ({error}); it loads the checkpoint itself when it starts")


def save_all(part: Part) -> None:
    """Save a checkpoint of all parts before this pod ends, so that no training step is lost."""
    try:
        with connect().checkpoint(part.pushes) as number:
            for peer in part.peers:
                call(peer, "POST", f"/save?number={number}")
        log(f"part {part.index}: saved checkpoint {number}")
    except (EdlError, OSError) as error:
        log(f"part {part.index}: not saved, so training continues from the last committed checkpoint: {error}")
