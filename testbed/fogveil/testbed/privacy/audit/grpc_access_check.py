"""The gRPC access check: every identity calls every method, and only those promised answer."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grpc import aio

from fogveil.core.errors import InfrastructureError
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

QUIET = 1.0
"""Seconds without an answer after which a call may be open, or its server may be slow."""
ANSWERED_WITHIN = 300.0
"""Seconds after which a server that answers nothing cannot be examined."""
TRIES = 5
"""Connections that an identity of this run may lose, on a busy machine."""
TRIED_EVERYWHERE = (AGENT, PROVIDER)
"""Roles that try every provider; the others try one, the Cloud and the clock."""
WATCH = "/fogveil.v1.QueueService/Watch"
WATCH_TOTAL = "/fogveil.v1.TotalService/Watch"
LOOK = "/fogveil.v1.ResourcesService/Look"
JOIN = "/fogveil.v1.ClockService/Join"
CONTROL = "/auditor.Control/Refused"
"""Nobody serves it: that it is refused shows that a server has dealt with the calls before it."""
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
NOT_ADMITTED = "FAILED_PRECONDITION"
"""How the clock refuses a hello, after access control."""
REFUSED = ("PERMISSION_DENIED", "UNIMPLEMENTED")
"""How an identity of this run is refused: it may not call the method, or nobody serves it."""
LOST = "UNAVAILABLE"
"""The status of a call without a connection."""
CUT_OFF = (LOST,)
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
    # The name of another run: a caller that passes the access control is refused for that.
    hello = JoinRequest(hello=Hello(name="nobody", protocol=PROTOCOL, run="none"))
    calls = {method: hello.SerializeToString() if method == JOIN else b"" for method in METHODS}
    attempts = []
    for method, (result, text) in (await _call_server(testbed, caller, server, calls)).items():
        passed = method == JOIN and result == NOT_ADMITTED
        attempts.append(
            Attempt(
                caller.name,
                server,
                method,
                is_promised(caller, server, method, level),
                caller.role is not None,
                ANSWERED if passed else result,
                text,
            )
        )
    return attempts


async def _call_server(
    testbed: Testbed, caller: Caller, server: str, calls: Mapping[str, bytes]
) -> dict[str, tuple[str, str]]:
    """Return the result of each call by its method, and its error text with trailers.

    An identity of this run that loses its connection tries again: on a busy machine that says
    nothing of the server. If it never has one, there is no result.
    """
    roster = testbed.split.roster
    role = {CLOCK: CLOCK, roster.cloud: CLOUD}.get(server, PROVIDER)
    host = Identity(testbed.run, role, server).host
    for _ in range(TRIES):
        async with _open_channel(caller, testbed.addresses[server], host) as channel:
            results = await _call_all(channel, server, calls)
            if caller.role is None or all(result != LOST for result, _ in results.values()):
                return results
            control, text = (await _call_all(channel, server, {CONTROL: b""}))[CONTROL]
    if control == LOST:
        raise InfrastructureError(f"{server} could not be reached as {caller.name}: {text}")
    return results


def _open_channel(caller: Caller, address: str, host: str) -> aio.Channel:
    # Without keep-alive: it would give a server up that a busy machine has stopped for seconds.
    options = [option for option in OPTIONS if not option[0].startswith("grpc.keepalive")]
    if caller.credentials is None:
        return aio.insecure_channel(address, options=options)
    named = [*options, ("grpc.ssl_target_name_override", host)]
    return aio.secure_channel(address, caller.credentials.for_channel(), options=named)


async def _call_all(
    channel: aio.Channel, server: str, calls: Mapping[str, bytes]
) -> dict[str, tuple[str, str]]:
    """Return the result of calls that are made at once.

    A call that stays without an answer is open if one that was made later is refused; else the
    server is slow.
    """
    opened = {method: _begin(channel, method, request) for method, request in calls.items()}
    answers = {method: asyncio.ensure_future(call.read()) for method, call in opened.items()}
    try:
        _, silent = await asyncio.wait(answers.values(), timeout=QUIET)
        if silent:
            await _wait_for_refusal(channel, server)
            await asyncio.wait(silent, timeout=QUIET)
        return {method: _result(answer) for method, answer in answers.items()}
    finally:
        for call in opened.values():
            call.cancel()
        await asyncio.gather(*answers.values(), return_exceptions=True)


def _begin(channel: aio.Channel, method: str, request: bytes) -> Any:
    raw: Any = bytes
    call = channel.unary_stream(method, request_serializer=raw, response_deserializer=raw)
    return call(request)


async def _wait_for_refusal(channel: aio.Channel, server: str) -> None:
    """Wait until a server has dealt with all calls before this one."""
    call = _begin(channel, CONTROL, b"")
    try:
        async with asyncio.timeout(ANSWERED_WITHIN):
            await call.read()
    except aio.AioRpcError:
        pass
    except TimeoutError as error:
        sentence = f"{server} answered no call within {ANSWERED_WITHIN:g} s"
        raise InfrastructureError(sentence) from error
    finally:
        call.cancel()


def _result(answer: asyncio.Future[Any]) -> tuple[str, str]:
    error = answer.exception() if answer.done() else None
    if error is None:
        return ANSWERED, ""
    if not isinstance(error, aio.AioRpcError):
        raise error
    return error.code().name, f"{error.details()} {list(error.trailing_metadata() or ())}"


async def joins_under_false_name(testbed: Testbed, folder: Path) -> bool:
    """Try to join the clock as a provider under the agent's name, which has not joined yet."""
    liar = testbed.split.roster.fogs[0]
    credentials = testbed.split.identify(liar, PROVIDER, folder / "liar")
    hello = JoinRequest(hello=Hello(name=AGENT, protocol=PROTOCOL, run=testbed.run))
    caller, calls = Caller(liar, credentials, PROVIDER), {JOIN: hello.SerializeToString()}
    try:
        result, _ = (await _call_server(testbed, caller, CLOCK, calls))[JOIN]
    except InfrastructureError:  # a clock that lets it in loses it at once, and ends the run
        if testbed.has_admitted(AGENT):
            return True
        raise
    # It may have been let in, have lost its connection, and have been refused after that.
    return result != NOT_ADMITTED or testbed.has_admitted(AGENT)


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
