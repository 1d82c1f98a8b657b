"""The page's server: for this machine and this user alone.

It listens on 127.0.0.1, at a port of the system's choice. Every request must carry the secret of the link, and name
this server as its host and, where a browser says so, as its origin: other pages in the same browser can neither read
nor ask. There are three routes, and none opens a file.
"""

from __future__ import annotations

import json
import logging
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nfcgcn.errors import NFCError
from nfcgcn.explore.answers import Explorer
from nfcgcn.explore.gexf import to_gexf
from nfcgcn.explore.page import make_page, title_of

ADDRESS = "127.0.0.1"
LONGEST = 2**16
"""Bytes of a question."""
log = logging.getLogger(__name__)


class Server(ThreadingHTTPServer):
    """Serves one explorer; `link` is what to open."""

    daemon_threads = True

    def __init__(self, explorer: Explorer, *, start: str | None = None) -> None:
        super().__init__((ADDRESS, 0), Handler)
        self.explorer = explorer
        self.token = secrets.token_urlsafe(24)
        self.page = make_page(title_of(explorer), start=start)
        self.hosts = {f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"}

    @property
    def link(self) -> str:
        """The address of the page, with its secret."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away."""


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds until a silent connection is closed."""
    wbufsize = -1
    """Head and content leave together: sent one by one, the second would wait for the first to be confirmed."""

    def do_GET(self) -> None:
        """Send the page or the graph."""
        url = urlsplit(self.path)
        if not self._is_allowed(parse_qs(url.query).get("token", [""])[0]):
            return
        if url.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page.html.encode())
        elif url.path == "/graph.gexf":
            text = to_gexf(self.server.explorer).encode()
            self._send(HTTPStatus.OK, "application/xml", text, {"Content-Disposition": "attachment"})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        """Answer a question."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LONGEST:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has at most {LONGEST} bytes")
            return
        body = self.rfile.read(int(length))
        if not self._is_allowed(self.headers.get("X-Token", ""), with_origin=True):
            return
        if self.path != "/ask":
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
            return
        try:
            answer = self.server.explorer.answer(json.loads(body))
        except NFCError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "a question must be JSON")
        except Exception as error:
            log.exception("a question was not answered")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the answer failed: {type(error).__name__}")
        else:
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer, separators=(",", ":")).encode())

    def _is_allowed(self, token: str, *, with_origin: bool = False) -> bool:
        """Return whether a request comes from our own page; if it does not, refuse it."""
        origin, origins = self.headers.get("Origin"), {f"http://{host}" for host in self.server.hosts}
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers only under its own address")
        elif (origin is not None or with_origin) and origin not in origins:
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers only its own page")
        elif not secrets.compare_digest(token.encode(errors="replace"), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "open the whole link that `nfcgcn explore` printed; it holds a secret")
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send(status, "application/json", json.dumps({"error": reason}).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes, more: dict[str, str] | None = None) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{self.server.page.policy}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            **(more or {}),
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def version_string(self) -> str:
        """Name no version."""
        return "nfcgcn"

    def log_message(self, *_: Any) -> None:
        """Log nothing: lines would hold the secret."""
