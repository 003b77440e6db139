"""The gRPC access check: every identity calls every method, and only those promised answer."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from grpc import aio

from fogveil.protocol.channels import OPTIONS, PROTOCOL
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import (
    AGENT,
    AUDITOR,
    BROKER,
    CLOCK,
    CLOUD,
    PROVIDER,
    SOURCES,
    Identity,
)
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit.canaries import planted_secrets, search
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.invalid_credentials import (
    expired_credentials,
    foreign_credentials,
)
from fogveil.testbed.privacy.audit.schema_check import REFLECTION
from fogveil.testbed.scenario.world import World
from fogveil.v1.clock_pb2 import Hello, JoinRequest

TIMEOUT = 1.0
"""Seconds after which a stream without an answer counts as open."""
REFUSED_WITHIN = 20.0
"""Seconds in which a refusal comes, on a busy machine."""
TRIED_EVERYWHERE = (AGENT, PROVIDER)
"""Roles that try every provider; the others try one, the Cloud and the clock."""
WATCH = "/fogveil.v1.QueueService/Watch"
WATCH_TOTAL = "/fogveil.v1.TotalService/Watch"
LOOK = "/fogveil.v1.ResourcesService/Look"
JOIN = "/fogveil.v1.ClockService/Join"
GUESSES = (
    *("Get", "List", "Status", "Stats", "Info", "Metrics", "Debug", "Load", "Count", "Counts"),
    *("Config", "Resources", "Look", "Watch", "Journal", "Speed", "Dump", "Query", "Other"),
)
METHODS = (
    WATCH,
    WATCH_TOTAL,
    LOOK,
    JOIN,
    REFLECTION,
    *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
    *(
        f"/grpc.channelz.v1.Channelz/Get{what}"
        for what in ("Servers", "Server", "ServerSockets", "TopChannels", "Channel", "Socket")
    ),
    *(
        f"/fogveil.v1.{service}Service/{method}"
        for service in ("Queue", "Total", "Resources", "Clock")
        for method in GUESSES
        if (service, method) not in (("Queue", "Watch"), ("Total", "Watch"), ("Resources", "Look"))
    ),
    *(f"/fogveil.v1.{name}Service/Get" for name in ("Debug", "Metrics", "Admin", "Stats", "Info")),
    *("/", "/metrics", "/debug", "/status", "/Debug/Get", "/debug/vars", "/fogveil/status"),
)
"""All of ours, those of gRPC's own services, and names that a hidden method may have: a server is
not asked what it serves."""
SERVED = {"count": (WATCH,), "total": (WATCH_TOTAL,), "full": (WATCH, LOOK)}
"""What a provider serves the agent, by level; repeated here to be independent of the product."""
ANSWERED = "answers"
REFUSED = ("PERMISSION_DENIED", "UNIMPLEMENTED")
"""How an identity of this run is refused: it may not call the method, or nobody serves it."""
CUT_OFF = ("UNAVAILABLE",)
"""How everybody else is refused: no connection is made."""


@dataclass(frozen=True)
class Caller:
    """A client that calls, with valid credentials or without."""

    name: str
    credentials: Credentials | None
    role: str | None
    """The role of a valid identity of this run; None if it must be refused everywhere."""


class Attempt(NamedTuple):
    """One call and its result."""

    caller: str
    server: str
    method: str
    promised: bool
    """Whether it should be answered."""
    valid: bool
    """Whether the caller has an identity of this run."""
    result: str
    """`ANSWERED`, or the name of the status with which it was refused."""
    text: str = ""
    """The error text and the trailers."""

    @property
    def is_wrong(self) -> bool:
        """Whether the result is not what is promised, or a refusal has a status of its own."""
        if self.promised or self.result == ANSWERED:
            return self.promised != (self.result == ANSWERED)
        return self.result not in (REFUSED if self.valid else CUT_OFF)


def issue_callers(testbed: Testbed, folder: Path) -> list[Caller]:
    """Issue credentials for every role, and some that every server must refuse."""
    run, roster = testbed.run, testbed.split.roster
    roles = {
        AGENT: AGENT,
        roster.fogs[-1]: PROVIDER,
        roster.cloud: CLOUD,
        roster.sources[0]: SOURCES,
        CLOCK: CLOCK,
        BROKER: BROKER,
        "auditor": AUDITOR,
    }
    valid = [
        Caller(name, testbed.split.identify(name, role, folder / f"good-{number}"), role)
        for number, (name, role) in enumerate(roles.items())
    ]
    agent = Identity(run, AGENT, AGENT)
    of_other_run = Identity("0" * 32, AGENT, AGENT)
    mint = testbed.split.mint
    assert mint is not None
    invalid = {
        "no certificate": None,
        "a foreign authority's agent": foreign_credentials(agent, folder / "foreign", mint),
        "an expired agent": expired_credentials(agent, folder / "expired", mint),
        "the agent of another run": foreign_credentials(of_other_run, folder / "other", mint),
    }
    return valid + [Caller(name, credentials, None) for name, credentials in invalid.items()]


def is_promised(caller: Caller, server: str, method: str, level: str) -> bool:
    """Return whether a call should be answered by what the docs promise, not by the product."""
    if caller.role is None:
        return False
    if server == CLOCK:
        return caller.role in (AGENT, PROVIDER, CLOUD, SOURCES) and method == JOIN
    if method == REFLECTION:
        return caller.role == AUDITOR
    return caller.role == AGENT and method in SERVED.get(level, ())


async def try_all_methods(testbed: Testbed, level: str, folder: Path) -> list[Attempt]:
    """Let every caller call every method of some servers, and some callers of all."""
    roster = testbed.split.roster
    sample = (roster.fogs[0], roster.cloud, CLOCK)
    attempts: list[Attempt] = []
    for caller in issue_callers(testbed, folder):
        everywhere = caller.role in TRIED_EVERYWHERE
        servers = (*roster.fogs, roster.cloud, CLOCK) if everywhere else sample
        tried = [_try_server(testbed, caller, server, level) for server in servers]
        attempts += [attempt for each in await asyncio.gather(*tried) for attempt in each]
    return attempts


async def _try_server(testbed: Testbed, caller: Caller, server: str, level: str) -> list[Attempt]:
    """Let a caller call every method of a server."""
    roster = testbed.split.roster
    role = {CLOCK: CLOCK, roster.cloud: CLOUD}.get(server, PROVIDER)
    host = Identity(testbed.run, role, server).host
    async with _open_channel(caller, testbed.addresses[server], host) as channel:
        promised = [is_promised(caller, server, method, level) for method in METHODS]
        results = await asyncio.gather(*map(partial(_try_method, channel), METHODS, promised))
    valid = caller.role is not None
    return [
        Attempt(caller.name, server, method, promise, valid, *result)
        for method, promise, result in zip(METHODS, promised, results, strict=True)
    ]


def _open_channel(caller: Caller, address: str, host: str) -> aio.Channel:
    if caller.credentials is None:
        return aio.insecure_channel(address, options=OPTIONS)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", host)]
    return aio.secure_channel(address, caller.credentials.for_channel(), options=options)


async def _try_method(channel: aio.Channel, method: str, promised: bool) -> tuple[str, str]:  # noqa: FBT001 (mapped)
    """Return the result of a call, and its error text with trailers."""
    # The name of another run: a caller that passes the access control is refused for that.
    hello = Hello(name="nobody", protocol=PROTOCOL, run="none")
    request = JoinRequest(hello=hello) if method == JOIN else None
    # A call that is answered may stay open; a refusal comes, though late on a busy machine.
    patience = TIMEOUT if promised and method != JOIN else REFUSED_WITHIN
    error = await _call(channel, method, request, patience)
    if error is None:
        return ANSWERED, ""
    passed = method == JOIN and error.code() is grpc.StatusCode.FAILED_PRECONDITION
    text = f"{error.details()} {list(error.trailing_metadata() or ())}"
    return ANSWERED if passed else error.code().name, text


async def _call(
    channel: aio.Channel, method: str, request: JoinRequest | None, patience: float
) -> aio.AioRpcError | None:
    """Return the error of a call, or None if it is answered or stays open."""
    raw: Any = bytes
    call = channel.unary_stream(method, request_serializer=raw, response_deserializer=raw)(
        request.SerializeToString() if request else b""
    )
    try:
        async with asyncio.timeout(patience):
            await call.read()
    except aio.AioRpcError as error:
        return error
    except TimeoutError:
        pass
    finally:
        call.cancel()
    return None


async def joins_under_false_name(testbed: Testbed, folder: Path) -> bool:
    """Try to join the clock as a provider under the agent's name, which has not joined yet."""
    liar = testbed.split.roster.fogs[0]
    credentials = testbed.split.identify(liar, PROVIDER, folder / "liar")
    hello = Hello(name=AGENT, protocol=PROTOCOL, run=testbed.run)
    caller = Caller(liar, credentials, PROVIDER)
    host = Identity(testbed.run, CLOCK, CLOCK).host
    async with _open_channel(caller, testbed.addresses[CLOCK], host) as channel:
        error = await _call(channel, JOIN, JoinRequest(hello=hello), REFUSED_WITHIN)
    # A clock that lets it in loses it at once, and ends the run with another status.
    return error is None or error.code() is not grpc.StatusCode.FAILED_PRECONDITION


def check_grpc_access(testbed: Testbed, world: World) -> Finding:
    """Try every identity at every method of a testbed whose agent has not started yet."""
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as folder:
        attempts = asyncio.run(try_all_methods(testbed, world.scenario.disclosure, Path(folder)))
        joined = asyncio.run(joins_under_false_name(testbed, Path(folder)))
    faults = [
        f"{each.caller} at {each.method} of {each.server}: {each.result}, expected "
        f"{ANSWERED if each.promised else 'a refusal'}"
        for each in attempts
        if each.is_wrong
    ]
    if joined:
        faults.append(f"{testbed.split.roster.fogs[0]} joined the clock as the agent")
    texts = [
        (f"the error text of {each.method} to {each.caller}", each.text.encode())
        for each in attempts
    ]
    faults += search(planted_secrets(world), texts)
    answered = sum(each.promised for each in attempts)
    evidence = (
        f"{len(attempts)} calls by {len({each.caller for each in attempts})} callers: {answered} "
        f"answered as promised, {len(attempts) - answered} refused; the clock refuses a false name"
    )
    details = tuple(f"{a.caller} · {a.server} · {a.method} · {a.result}" for a in attempts)
    promise = "refusals: only the promised identities can call a method"
    return judge(promise, evidence, faults, len(attempts), details=details)
