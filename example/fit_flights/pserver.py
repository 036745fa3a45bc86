"""An asynchronous parameter server in one file: it holds a part of the weights, and gradients move them.

Part i of n holds the weights i, i + n, i + 2n, ... Trainers call it when they have a gradient, and wait for nobody.

    GET  /weights                   float32 of this part
    POST /push?by=NAME&seq=N        a gradient, float32; answers with the weights as they are then
    POST /save?number=N             keep this state as checkpoint N, here and with the next part
    POST /load?number=N             go back to checkpoint N; 0 is the start
    GET, PUT /copy?part=I&number=N  the checkpoint of another part

A push is numbered by who sends it and is applied once, however often it is sent. A server that comes back after a
loss takes up the checkpoint that the master has committed, and takes the other parts back to it too: weights and
accounts then speak of the same records.
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
    """A part of the weights, moved by Adagrad (Duchi, Hazan and Singer, 2011).

    Args:
        index: which part.
        size: all weights together.
        folder: for checkpoints.
        peers: addresses of all parts, this one included.
        rate: how far a first gradient moves a weight.
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
        self.pushes = 0  # that have moved these weights

    def push(self, by: str, seq: int, gradient: bytes) -> bytes:
        """Move the weights, unless this push has moved them before."""
        step = np.frombuffer(gradient, np.float32)
        with self.lock:
            if seq > self.last.get(by, 0):
                self.squares += step * step
                self.weights -= self.rate * step / np.sqrt(self.squares)
                self.last[by] = seq
                self.pushes += 1
            return self.weights.tobytes()

    def save(self, number: int) -> None:
        """Keep this state, and give the next part a copy: one of two machines may be lost with its disk."""
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
        self.keep(self.index, number, state.getvalue())
        neighbour = (self.index + 1) % len(self.peers)
        if neighbour != self.index:
            call(self.peers[neighbour], "PUT", f"/copy?part={self.index}&number={number}", state.getvalue())

    def load(self, number: int) -> None:
        """Go back to a checkpoint; 0 is the start.

        Raises:
            FileNotFoundError: nobody has it.
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
                path.unlink(missing_ok=True)  # never committed, or undone
        say(f"part {self.index}: checkpoint {number}, after {self.pushes} pushes")

    def keep(self, part: int, number: int, state: bytes) -> None:
        """Write a checkpoint as a whole or not at all, and forget the oldest."""
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
        """Where a checkpoint is kept."""
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
                f"checkpoint {number} of part {self.index}: neither {path} nor a copy at {neighbour}; give the"
                " pservers a volume (CHECKPOINT_DIR), or two of them"
            ) from error


class Server(ThreadingHTTPServer):
    """Serves one part.

    Args:
        part: what it serves.
        port: on every address of this machine.
    """

    def __init__(self, part: Part, port: int) -> None:
        super().__init__(("", port), Handler)
        self.part = part

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 the base's
        """A trainer was killed in mid-request, or the disk is full: one line is enough."""
        say(f"a request from {client_address} failed: {sys.exception()!r}")


class Handler(BaseHTTPRequestHandler):
    """What answers requests about the part of a server."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # an answer leaves as one packet

    def do_GET(self) -> None:
        """Weights, or the checkpoint of another part."""
        asks = self._asked()
        if self.path == "/weights":
            self._answer(self.server.part.weights.tobytes())
        else:
            path = self.server.part.path(int(asks["part"]), int(asks["number"]))
            self._answer(path.read_bytes()) if path.exists() else self._answer(b"", 404)

    def do_POST(self) -> None:
        """Push, save or load."""
        asks, body = self._asked(), self._body()
        if self.path.startswith("/push?") and len(body) == self.server.part.weights.nbytes:
            self._answer(self.server.part.push(asks["by"], int(asks["seq"]), body))
        elif self.path.startswith("/save?"):
            self.server.part.save(int(asks["number"]))
            self._answer(b"")
        elif self.path.startswith("/load?"):
            try:
                self.server.part.load(int(asks["number"]))
            except FileNotFoundError as error:
                self.log_error("%s", error)
                self._answer(b"", 404)
            else:
                self._answer(b"")
        else:
            self._answer(b"", 400)

    def do_PUT(self) -> None:
        """Take the checkpoint of another part."""
        asks = self._asked()
        self.server.part.keep(int(asks["part"]), int(asks["number"]), self._body())
        self._answer(b"")

    def _asked(self) -> dict[str, str]:
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
        """A line for each push would be too many."""


def call(peer: str, method: str, path: str, body: bytes = b"") -> bytes:
    """One request to a part.

    Raises:
        OSError: it is not answered, or with anything but 200.
    """
    wire = http.client.HTTPConnection(peer, timeout=TIMEOUT_S)
    try:
        wire.request(method, path, body)
        answer = wire.getresponse()
        data = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{peer}: {method} {path}: {error!r}") from error
    finally:
        wire.close()
    if answer.status != http.client.OK:
        raise OSError(f"{peer}: {method} {path}: status {answer.status}")
    return data


def say(line: str) -> None:
    """For `kubectl logs`."""
    print(line, flush=True)


def serve(size: int, rate: float = RATE) -> None:
    """Serve one part until SIGTERM, and save the model then."""
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # this thread waits for them below
    peers, index = os.environ["PADDLE_PSERVERS"].split(","), int(os.environ["PADDLE_PSERVER_ID"])
    folder = Path(os.environ.get("CHECKPOINT_DIR", "/tmp/checkpoints"))  # noqa: S108 a container's own
    folder.mkdir(parents=True, exist_ok=True)
    part = Part(index, size, folder, peers, rate)
    take_up(part)
    server = Server(part, int(peers[index].rpartition(":")[2]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"part {index} of {len(peers)}: {len(part.weights)} weights, on port {server.server_port}")
    signal.sigwait(ends)
    save_all(part)


def take_up(part: Part) -> None:
    """Begin where the accounts of the master are, and take the other parts there too."""
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
                say(f"part {index} does not answer, and will take up its checkpoint by itself: {error}")


def save_all(part: Part) -> None:
    """A last checkpoint of all parts, so that nothing is lost with a pod that is asked to go."""
    try:
        with connect().checkpoint(part.pushes) as number:
            for peer in part.peers:
                call(peer, "POST", f"/save?number={number}")
        say(f"part {part.index}: saved checkpoint {number}")
    except (EdlError, OSError) as error:
        say(f"part {part.index}: the last committed checkpoint stands: {error}")
