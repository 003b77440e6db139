"""The bare limit: one client with one bidirectional gRPC stream to each of N echo processes.

A round writes one message to each and waits for all answers: the least that a decision in lockstep
can cost, where each provider receives an instant and sends a count. It uses the testbed's event
loop, channel options and kind of certificates, and messages of a grant's size that nobody encodes
or parses. Like providers, each echo is a program of its own: forked copies of one process would
share memory, which stays in the CPU's caches from one to the next.

Run as a module this is `echo`, `copies` (an echo that forks N - 1 others) or `client`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import uvloop
from grpc import aio

from fogveil.protocol.channels import OPTIONS
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import PROVIDER, Identity
from fogveil.testbed.launch.process_environment import ENVIRONMENT

METHOD = "/fogveil.bench.Echo/Run"
ECHO = Identity("bench", PROVIDER, "echo")
WARM_UP = 10
"""Unmeasured rounds at the beginning."""


class Fanout:
    """Echo processes and their client; a context that ends them."""

    def __init__(
        self, echoes: int, message_size: int, *, secure: bool, copies: bool = False
    ) -> None:
        self._echoes, self._size, self._secure = echoes, message_size, secure
        self._copies = copies
        self._folder = tempfile.TemporaryDirectory()
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        folder = "-"
        if self._secure:
            from fogveil.testbed.launch.certificates import Mint

            folder = str(Mint(ECHO.run).issue(ECHO, Path(self._folder.name)).folder)
        if self._copies:
            echoes = [self._start("copies", folder, str(self._echoes))] * self._echoes
        else:
            echoes = [self._start("echo", folder) for _ in range(self._echoes)]
        ports = [echo.stdout.readline().strip() for echo in echoes if echo.stdout]
        self._client = self._start("client", folder, str(self._size), *ports)
        return self

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.federated_bare", *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=os.environ | ENVIRONMENT,
            process_group=0,  # as participants are started
        )
        self._processes.append(process)
        return process

    def rate(self, seconds: float) -> float:
        """Return rounds per second."""
        client = self._client
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"{seconds}\n")
        client.stdin.flush()
        return float(client.stdout.readline())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
            process.wait()
        self._folder.cleanup()


# --- the echo processes --------------------------------------------------------------------------


class _Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        del handler_call_details
        return grpc.stream_stream_rpc_method_handler(self._run)

    async def _run(self, _requests: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        while (message := await context.read()) is not aio.EOF:
            await context.write(message)


async def _echo(folder: str) -> None:
    server = aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_Echo(),))
    if folder == "-":
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", Credentials(Path(folder)).for_server())
    await server.start()
    os.write(1, f"{port}\n".encode())
    await server.wait_for_termination()


def echo(folder: str, number: str = "1") -> None:
    """Serve, in this process and in forked copies of it up to a number."""
    for _ in range(int(number) - 1):
        if os.fork() == 0:
            break
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    uvloop.run(_echo(folder))


def _exit_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)


# --- the client ----------------------------------------------------------------------------------


async def _rounds(folder: str, message: bytes, ports: list[str]) -> None:
    """Run rounds for as many seconds as each line of input says, and print the rate.

    Of five ways to write the loop this is the fastest: a task for each direction of each stream.
    """
    loop = asyncio.get_running_loop()
    calls: list[Any] = [_channel(folder, port).stream_stream(METHOD)() for port in ports]
    for call in calls:
        await call.initial_metadata()
    triggers = [asyncio.Event() for _ in calls]
    outstanding = 0
    complete = loop.create_future()

    async def write(call: Any, trigger: asyncio.Event) -> None:
        while await trigger.wait():
            trigger.clear()
            await call.write(message)

    async def read(call: Any) -> None:
        nonlocal outstanding
        while await call.read() is not aio.EOF:
            outstanding -= 1
            if not outstanding:
                complete.set_result(None)

    async def run_round() -> None:
        nonlocal outstanding, complete
        outstanding, complete = len(calls), loop.create_future()
        for trigger in triggers:
            trigger.set()
        await complete

    tasks = [asyncio.ensure_future(read(call)) for call in calls]
    tasks += [asyncio.ensure_future(write(*pair)) for pair in zip(calls, triggers, strict=True)]
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for _ in range(WARM_UP):
            await run_round()
        rounds, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < float(line):
            await run_round()
            rounds += 1
        print(rounds / spent, flush=True)
    os._exit(0)


def _channel(folder: str, port: str) -> aio.Channel:
    if folder == "-":
        return aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", ECHO.host)]
    credentials = Credentials(Path(folder)).for_channel()
    return aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


if __name__ == "__main__":
    role, identity, *rest = sys.argv[1:]
    if role in ("echo", "copies"):
        echo(identity, *rest)
    else:
        uvloop.run(_rounds(identity, bytes(int(rest[0])), rest[1:]))
