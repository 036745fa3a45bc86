"""A linear model on parameter servers: the smallest training in which every role of a gang has its part.

The environment says who runs where, as in the scripts of 2017: endpoints, number and place of each role.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIZE, ROWS, STEPS, STEP_S, RATE = 4, 64, 120, 0.1, 0.1
TRUE = [1.0, -2.0, 3.0, 0.5]


def main() -> None:
    """Do what this pod is for."""
    endpoints = os.environ["PADDLE_PSERVERS"].split(",")
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        serve(endpoints, int(os.environ["PADDLE_PSERVER_ID"]))
    else:
        train(endpoints, int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"]))


def serve(endpoints: list[str], place: int) -> None:
    """Hold every so-many-th weight: a POST hands in their gradient and takes the weights along."""
    weights, lock = [0.0 for _ in range(place, SIZE, len(endpoints))], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            gradient = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                for index, slope in enumerate(gradient):
                    weights[index] -= RATE * slope
                answer = json.dumps(weights).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing: a line for each push says nothing."""

    address, _, port = endpoints[place].rpartition(":")
    print(f"pserver {place} of {len(endpoints)} at {address}:{port}")
    ThreadingHTTPServer(("", int(port)), Handler).serve_forever()


def train(endpoints: list[str], rank: int, count: int) -> None:
    """Fit this trainer's rows."""
    print(f"trainer {rank} of {count} at {time.time():.3f}, pservers {','.join(endpoints)}")
    rows = [[((i * 7 + j * 13) % 11) / 5.5 - 1 for j in range(SIZE)] for i in range(rank, ROWS, count)]
    weights = push(endpoints, [0.0] * SIZE)
    for step in range(STEPS):
        errors = [sum(w * x for w, x in zip(weights, row, strict=True)) - value(row) for row in rows]
        loss = sum(error * error for error in errors) / len(rows)
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss:.5f}")
        gradient = [2 * sum(e * row[j] for e, row in zip(errors, rows, strict=True)) / len(rows) for j in range(SIZE)]
        weights = push(endpoints, gradient)
        time.sleep(STEP_S)


def value(row: list[float]) -> float:
    """What is to be learned."""
    return sum(w * x for w, x in zip(TRUE, row, strict=True))


def push(endpoints: list[str], gradient: list[float]) -> list[float]:
    """Hand each pserver its part of a gradient, and take all weights along."""
    weights = [0.0] * SIZE
    for place, endpoint in enumerate(endpoints):
        weights[place :: len(endpoints)] = ask(endpoint, gradient[place :: len(endpoints)])
    return weights


def ask(endpoint: str, part: list[float]) -> list[float]:
    """One pserver's answer; one that does not listen yet is waited for."""
    while True:
        try:
            with urllib.request.urlopen(f"http://{endpoint}/", json.dumps(part).encode(), timeout=10) as answer:
                found: list[float] = json.load(answer)
                return found
        except urllib.error.URLError:
            time.sleep(STEP_S)


if __name__ == "__main__":
    main()
