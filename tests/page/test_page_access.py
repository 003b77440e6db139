"""Who may see a page: whoever opens its link first, from this machine, and nobody else."""

from __future__ import annotations

import http.client
import http.server
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser
from support import make_world

import fogveil.api as fogveil
from fogveil.testbed.dashboard.server import REFUSED, user_of_port


@pytest.fixture
def link(serve: Callable[..., Any], tmp_path: Path) -> str:
    """The link of a page of a recorded run."""
    fogveil.run(make_world(horizon=300, disclosure="count").scenario, "jsq", out=tmp_path / "run")
    return str(serve("dashboard", tmp_path / "run").link)


def request(
    link: str, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """Send one request as it is; header names are written with underscores."""
    connection = http.client.HTTPConnection(urlsplit(link).netloc, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    with closing(connection):
        answer = connection.getresponse()
        body = answer.readline() if "/events/" in path else answer.read(2000)
        return answer.status, body.decode(errors="replace"), answer.headers


def open_page(link: str) -> str:
    """Use the link; return the path below which everything lies."""
    status, _, headers = request(link, urlsplit(link).path)
    assert status == 303
    return str(headers["location"])


def test_without_the_token_there_is_nothing(link: str) -> None:
    for path in (
        "/",
        "/page.js",
        "/facts/agent",
        "/events/private",
        "/open/",
        "/open/guess",
        "/x/",
    ):
        status, text, _ = request(link, path)
        assert (status, text) == (403, REFUSED), path
    for method in ("POST", "PUT", "OPTIONS"):
        assert request(link, "/control", method, "{}")[0] == 403


def test_the_link_works_once(link: str) -> None:
    page = open_page(link)
    assert request(link, urlsplit(link).path)[0] == 403
    status, text, headers = request(link, page)
    assert status == 200
    assert "fogveil" in text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "access-control-allow-origin" not in headers


def test_other_hosts_and_origins_are_refused(link: str) -> None:
    """A page elsewhere that has found the address (or a name that leads here) gets nothing."""
    page = open_page(link)
    host = urlsplit(link).netloc
    facts, control = f"{page}facts/private", f"{page}control"
    assert request(link, facts)[0] == 200
    assert request(link, facts, Host="evil.example")[0] == 403
    assert request(link, facts, Origin="http://evil.example")[0] == 403
    assert request(link, facts, Sec_Fetch_Site="cross-site")[0] == 403
    assert request(link, facts, Sec_Fetch_Site="same-site")[0] == 403, "another port of this host"
    held = '{"held": true}'
    assert request(link, control, "POST", held, Origin="http://127.0.0.1:1")[0] == 403
    assert request(link, control, "POST", held, Origin=f"http://{host}")[0] == 200
    assert request(link, control, "POST", "no wish")[0] == 400
    assert request(link, control, "POST", "[1]")[0] == 400
    assert request(link, control, "POST", " " * 5000)[0] == 413
    assert request(link, f"{page}../server.py")[0] == 403
    assert request(link, f"{page}uplot-LICENSE.txt")[0] == 403


def test_an_attack_page_reads_nothing(link: str, browser: Browser, tmp_path: Path) -> None:
    """A page of another origin, in the same browser, with the secret address in its hands."""
    page_address = link.split("/open/", maxsplit=1)[0] + open_page(link)
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "index.html").write_text("<title>attack</title>")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0),
        lambda *a: http.server.SimpleHTTPRequestHandler(*a, directory=str(tmp_path / "attack")),
    )
    Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    attacker = context.new_page()
    attacker.goto(f"http://127.0.0.1:{server.server_port}/")
    script = """async (url) => {
        const tried = [];
        for (const path of ["", "facts/private", "events/private", "page.js"]) {
            for (const mode of ["cors", "no-cors"]) {
                try { tried.push(await (await fetch(url + path, {mode})).text()); }
                catch { tried.push(""); }
            }
        }
        const body = '{"held": false}';
        try { await fetch(url + "control", {method: "POST", mode: "no-cors", body}); } catch {}
        const frame = document.createElement("iframe");
        frame.src = url;
        document.body.append(frame);
        await new Promise((done) => setTimeout(done, 500));
        try { tried.push(frame.contentDocument.title); } catch { tried.push(""); }
        return tried.join("");
    }"""
    assert attacker.evaluate(script, page_address) == ""
    context.close()
    server.shutdown()
    server.server_close()
    status, text, _ = request(link, urlsplit(page_address).path + "control", "POST", "{}")
    assert status == 200
    assert '"held":true' in text, "the attack page started the replay"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has participants with users of their own")
def test_a_participants_user_is_refused(tmp_path: Path) -> None:
    """The agent cannot read the page even where it can reach loopback and knows the address."""
    code = """
import asyncio, sys
from pathlib import Path
from fogveil.testbed.dashboard.process import serve
from fogveil.testbed.dashboard.session import Session
async def ended(): await asyncio.to_thread(sys.stdin.read)
session = Session([Path(sys.argv[1])])
asyncio.run(serve(session, frozenset({54321}), lambda link: print(link, flush=True), ended()))
"""
    fogveil.run(make_world(horizon=300, disclosure="count").scenario, "jsq", out=tmp_path / "run")
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    link = server.stdout.readline().strip()
    target = f"{link.split('/open/')[0]}{open_page(link)}facts/private"
    ask = f"import urllib.request as u; print(len(u.urlopen({target!r}).read()))"
    for user, refused in ((54321, True), (54322, False)):
        asked = subprocess.run(
            ["/usr/bin/python3", "-c", ask] if Path("/usr/bin/python3").exists() else [],
            user=user,
            group=user,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("403" in asked.stderr) is refused, asked.stderr
    server.stdin.close()
    assert server.wait() == 0
    server.stdout.close()


def test_the_user_of_a_port_is_found() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert user_of_port(listener.getsockname()[1]) == os.geteuid()
    assert user_of_port(1) is None
