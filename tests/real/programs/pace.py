"""Trainers whose speed is known: each record takes a twentieth of a second.

`alone` spends it asleep in the trainer, so that as many trainers are as many times as fast. `behind-one` spends it in
the one pserver, which serves one trainer at a time, so that a second trainer adds nothing.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from edl.worker.job import connect

RECORD_S = 0.05


class Handler(BaseHTTPRequestHandler):
    """One at a time."""

    def do_GET(self) -> None:
        """The work of one record."""
        time.sleep(RECORD_S)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: a line for each record says nothing."""


def main() -> None:
    """Do what this pod is for."""
    first = os.environ["PADDLE_PSERVERS"].split(",")[0]
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        HTTPServer(("", int(first.rpartition(":")[2])), Handler).serve_forever()
    with connect() as job:
        for _ in job.records():
            if sys.argv[1] == "alone":
                time.sleep(RECORD_S)
            else:
                urllib.request.urlopen(f"http://{first}/", timeout=30).close()


if __name__ == "__main__":
    main()
