"""Listeners on loopback: a receiver of webhooks and a mail server, each in a thread; a silent one.

The receiver checks signatures by the words of Standard Webhooks, not by the code that signs.
"""

import base64
import hashlib
import hmac
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Listener:
    """What was received; ``answers`` are statuses given one after the other, then 200 or 250."""

    port: int = 0
    received: list[Any] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def answer(self, usual: int) -> int:
        return self.answers.pop(0) if self.answers else usual


@dataclass(frozen=True)
class Delivery:
    """A webhook as it came in."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed_by(self, secret: str) -> bool:
        key = base64.b64decode(secret[len("whsec_") :])
        said = b".".join([self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body])
        expected = base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
        return f"v1,{expected}" in self.headers["webhook-signature"].split(" ")


@contextmanager
def webhook_receiver() -> Iterator[Listener]:
    """A receiver at ``http://127.0.0.1:PORT``."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            listener.received.append(Delivery(headers, body))
            self.send_response(listener.answer(200))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with _running(ThreadingHTTPServer(("127.0.0.1", 0), Handler), listener):
        yield listener


@contextmanager
def mail_sink() -> Iterator[Listener]:
    """A mail server that takes each mail, or answers with a status of ``answers``."""
    listener = Listener()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say(220)
            while line := self.rfile.readline().decode().strip():
                word = line.split(" ")[0].upper()
                if word == "DATA":
                    self._say(354)
                    self._take()
                else:
                    self._say(221 if word == "QUIT" else 250)

        def _take(self) -> None:
            lines = []
            while (line := self.rfile.readline().decode()) != ".\r\n":
                lines.append(line.removeprefix("."))
            if (status := listener.answer(250)) == 250:
                listener.received.append(message_from_string("".join(lines)))
            self._say(status)

        def _say(self, status: int) -> None:
            self.wfile.write(f"{status} sink\r\n".encode())

    with _running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler), listener):
        yield listener


@contextmanager
def silent_listener() -> Iterator[int]:
    """The port of a listener that takes connections and never says a word."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(8)
        yield held.getsockname()[1]


def text_of(letter: Message) -> str:
    """What a mail says."""
    return letter.get_payload(decode=True).decode()


@contextmanager
def _running(server: socketserver.TCPServer, listener: Listener) -> Iterator[None]:
    listener.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
