"""Stores on loopback: one over HTTP that can be told to lie, to hang and to die, and S3's as `moto` has it."""

from __future__ import annotations

import http.server
import logging
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

HANG_SECONDS = 1.5

Answer = Callable[[str, bytes], bytes | None]
"""Of a name and what lies there: what is said in its place, None where the connection ends in the middle."""


@dataclass
class HttpStore:
    """Objects by path. An object is created with `If-None-Match: *`, and never changed by it."""

    objects: dict[str, bytes] = field(default_factory=dict)
    answer: Answer = lambda name, data: data
    hangs: bool = False
    refuses: bool = False
    requests: list[str] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def named(self, part: str) -> list[str]:
        return sorted(name for name in self.objects if f"/{part}/" in name)


@contextmanager
def http_store(port: int = 0) -> Iterator[HttpStore]:
    """A store at a port of loopback, at any that is free where that is 0."""
    store = HttpStore()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: object) -> None:
            return

        def say(self, status: int, data: bytes = b"", length: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_GET(self) -> None:
            store.requests.append(f"{self.command} {self.path}")
            if store.hangs:
                time.sleep(HANG_SECONDS)
                self.close_connection = True
                return
            data = store.objects.get(self.path)
            if data is None:
                self.say(404)
                return
            said = store.answer(self.path, data)
            if said is None:
                self.say(200, data[: len(data) // 2], len(data))
                self.close_connection = True
            else:
                self.say(200, said)

        do_HEAD = do_GET

        def do_PUT(self) -> None:
            store.requests.append(f"PUT {self.path}")
            data = self.rfile.read(int(self.headers["Content-Length"]))
            with store.lock:
                taken = self.path in store.objects and self.headers["If-None-Match"] == "*"
                if not taken and not store.refuses:
                    store.objects[self.path] = data
            self.say(403 if store.refuses else 412 if taken else 201)

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not wait any longer is what some tests are about."""

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}/team"
    yield store
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def s3_store() -> Iterator[str]:
    """The URL of an empty bucket; the environment has what its clients need."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/team", method="PUT")).close()
    settings = {
        "AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    with patch.dict(os.environ, settings):
        yield "s3://team/bolt"
    server.stop()
