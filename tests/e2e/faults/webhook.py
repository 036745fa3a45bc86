"""An admission webhook that refuses every request, with the API server's own certificate."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

WORDS = "image example/trainer is not signed"


class _Refuser(BaseHTTPRequestHandler):
    """Answers every AdmissionReview with no."""

    def do_POST(self) -> None:
        """One review."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verdict = {"uid": asked["request"]["uid"], "allowed": False, "status": {"code": 403, "message": WORDS}}
        body = json.dumps({**{k: asked[k] for k in ("apiVersion", "kind")}, "response": verdict}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing on stderr."""


class Webhook:
    """The server of the webhook; use as a context manager.

    Args:
        tls: the folder with the API server's certificate, which is valid for 127.0.0.1.
    """

    def __init__(self, tls: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "apiserver.crt", tls / "apiserver.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Refuser)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook")
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
