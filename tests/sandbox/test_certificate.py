from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

from edl.sandbox.certificate import write_certificate


def test_a_client_that_trusts_the_certificate_accepts_the_server(tmp_path: Path) -> None:
    path = write_certificate(tmp_path / "server.pem")
    assert path.stat().st_mode & 0o077 == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=str(path))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as secure:
                secure.sendall(b"hello")

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            socket.create_connection(listener.getsockname()) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            assert secure.recv(5) == b"hello"
        thread.join()
