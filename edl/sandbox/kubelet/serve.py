"""The program of serving images in the sandbox: answers every GET with 200 on the given ports, until SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORTS = "EDL_SANDBOX_CONTAINER_PORTS"
_DEFAULT_PORTS = "80"
_UNPRIVILEGED = 8000


class Handler(BaseHTTPRequestHandler):
    """Answers with the name of the pod."""

    def do_GET(self) -> None:
        """Send the name of the pod."""
        body = f"{os.environ.get('HOSTNAME', 'sandbox')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log a line a request, as web servers do."""
        sys.stdout.write(f'{self.client_address[0]} "{self.requestline}" {code} {size}\n')
        sys.stdout.flush()


def _listen(port: int) -> ThreadingHTTPServer:
    """Listen on a port; on 8000 more where an ordinary user may not have a port below 1024."""
    try:
        return ThreadingHTTPServer(("", port), Handler)
    except PermissionError:
        sys.stderr.write(f"port {port} needs root; listening on {port + _UNPRIVILEGED}\n")
        return ThreadingHTTPServer(("", port + _UNPRIVILEGED), Handler)


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Answer every GET request with 200.")
    parser.add_argument("--no-ports", action="store_true", help="only wait")
    is_waiting = parser.parse_args().no_ports
    numbers = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for port in () if is_waiting else (os.environ.get(PORTS) or _DEFAULT_PORTS).split(","):
        try:
            server = _listen(int(port))
        except OSError as error:
            sys.stderr.write(f"port {port}: {error.strerror}\n")
            return 1
        threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.sigwait(numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
