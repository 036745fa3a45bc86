"""A service and its users in one container: requests at a fixed pace, and a line with the time that each one took.

A user who waits does not ask less often: the time of a request counts from when it was due, so a service that stands
still is charged for everybody who would have come meanwhile. A line is `SECONDS MILLISECONDS`: when the request was
due, as time.time() counts, and how long its answer took from then.
"""

from __future__ import annotations

import http.client
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8000
EVERY_S = 0.02
LOOP = 400_000
"""Steps of the loop that is the work of one request: about five milliseconds of one core."""


class Handler(BaseHTTPRequestHandler):
    """Connections stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 12  # send an answer as one packet

    def do_GET(self) -> None:
        """Compute, and answer; what the kubelet asks costs nothing."""
        body = str(sum(range(LOOP)) if self.path == "/work" else 0).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the log is the users'."""


def ask() -> None:
    """Be the users, for ever."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    due_s = time.time()
    while True:
        time.sleep(max(0.0, due_s - time.time()))
        connection.request("GET", "/work")
        connection.getresponse().read()
        print(f"{due_s:.3f} {1000 * (time.time() - due_s):.2f}", flush=True)
        due_s += EVERY_S


def main() -> None:
    """Serve, with users."""
    with ThreadingHTTPServer(("", PORT), Handler) as server:
        multiprocessing.Process(target=ask, daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
