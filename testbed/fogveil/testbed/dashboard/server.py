"""The page's server: on loopback, for whoever has the link, and nobody else.

The link carries a token that works once. It leads to an address with a longer secret, below which
everything lies: without it every request gets the same refusal. A request must name our own host
and, where a browser says where it comes from, our own page; participants' users are refused.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fogveil.testbed.dashboard.session import Session

LOOPBACK = "127.0.0.1"
PERIOD = 0.25
"""Seconds between two looks at a run."""
LARGEST_WISH = 1000
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
REFUSED = "fogveil: this page is opened by the link that the command printed, once\n"


class Gate:
    """Refuses requests that do not come from our own page, before anything else sees them."""

    def __init__(self, app: ASGIApp, port: int, refused_users: frozenset[int]) -> None:
        self._app, self._refused_users = app, refused_users
        self._hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not self._admits(Request(scope)):
            response = PlainTextResponse(REFUSED, 403, headers=HEADERS)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, request: Request) -> bool:
        host, origin = request.headers.get("host"), request.headers.get("origin")
        if host not in self._hosts or (origin and origin != f"http://{host}"):
            return False
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        client = request.client
        return not (
            self._refused_users and client and user_of_port(client.port) in self._refused_users
        )


def user_of_port(port: int) -> int | None:
    """Return the user whose socket has a local port on loopback, by the kernel's table."""
    wanted = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        cells = line.split()
        if cells[1] == wanted:
            return int(cells[7])
    return None


class PageServer:
    """The routes of one page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._token: str | None = secrets.token_urlsafe(24)
        self._secret = secrets.token_urlsafe(32)
        self._static = files("fogveil.testbed.dashboard") / "static"
        self._streams = 0
        """Open streams: without any, nothing is read."""
        self._wanted = False
        """Whether a page has taken what was read last: one that hangs is not read for."""
        self._closing = False

    def link(self, port: int) -> str:
        """Return the link, which works once."""
        return f"http://{LOOPBACK}:{port}/open/{self._token}"

    def app(self, port: int, refused_users: frozenset[int]) -> ASGIApp:
        """Return the application."""
        below = f"/{self._secret}"
        streams: dict[str, Callable[[], dict[str, Any]]] = {
            "agent": self.session.agent_half,
            "private": self.session.private_half,
        }
        routes = [
            Route("/open/{token}", self._open),
            Route(f"{below}/facts/agent", self._facts),
            Route(f"{below}/facts/private", self._private_facts),
            *(
                Route(f"{below}/events/{name}", self._stream(make))
                for name, make in streams.items()
            ),
            Route(f"{below}/control", self._control, methods=["POST"]),
            Route(f"{below}/{{name:path}}", self._file),
        ]
        handlers: Any = {404: _refuse, 405: _refuse}
        return Gate(Starlette(routes=routes, exception_handlers=handlers), port, refused_users)

    async def _open(self, request: Request) -> Response:
        given = request.path_params["token"]
        if self._token is None or not secrets.compare_digest(given, self._token):
            return PlainTextResponse(REFUSED, 403, headers=HEADERS)
        self._token = None
        return RedirectResponse(f"/{self._secret}/", 303, headers=HEADERS)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        kind = KINDS.get(Path(name).suffix)
        file = self._static / name
        if kind is None or "/" in name or not file.is_file():
            return PlainTextResponse(REFUSED, 403, headers=HEADERS)
        return Response(file.read_bytes(), media_type=kind, headers=HEADERS)

    async def _facts(self, _request: Request) -> Response:
        facts = await asyncio.to_thread(self.session.facts)  # which lays the network out
        return JSONResponse(facts, headers=HEADERS)

    async def _private_facts(self, _request: Request) -> Response:
        facts = [run.private.facts() for run in self.session.runs]
        return JSONResponse({"runs": facts}, headers=HEADERS)

    async def _control(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_WISH:
                return PlainTextResponse("too large\n", 413, headers=HEADERS)
        try:
            wish = json.loads(body)
            self.session.control(wish)
        except (ValueError, TypeError, KeyError, AttributeError):
            return PlainTextResponse("not a wish of this page\n", 400, headers=HEADERS)
        return JSONResponse(self.session.status(), headers=HEADERS)

    def _stream(self, make: Callable[[], dict[str, Any]]) -> Callable[[Request], Any]:
        async def events(_request: Request) -> Response:
            stream = self._events(make)
            return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

        return events

    async def _events(self, make: Callable[[], dict[str, Any]]) -> AsyncIterator[bytes]:
        """Yield the state when it has changed; a page that reads slowly gets fewer of them."""
        self._streams += 1
        self.session.open()
        last = b""
        try:
            while not self._closing:
                self._wanted = True
                made = await asyncio.to_thread(make)
                state = json.dumps(made, separators=(",", ":")).encode()
                if state != last:
                    last = state
                    yield b"data: " + state + b"\n\n"
                await asyncio.sleep(PERIOD)
            yield b"event: end\ndata: {}\n\n"
        finally:
            self._streams -= 1

    async def close(self) -> None:
        """Let open pages show how it ended, then end their streams."""
        if self._streams:
            await asyncio.to_thread(self.session.look)
            await asyncio.sleep(3 * PERIOD)
        self._closing = True

    async def follow(self) -> None:
        """Look at the runs as long as somebody looks at the page."""
        while True:
            if self._streams and self._wanted:
                self._wanted = False
                await asyncio.to_thread(self.session.look)
            await asyncio.sleep(PERIOD)


async def _refuse(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse(REFUSED, 403, headers=HEADERS)
