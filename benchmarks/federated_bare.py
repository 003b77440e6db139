"""The bare limit: one client with one bidirectional gRPC stream to each of N echo processes.

A round writes one message to each and waits for all answers, which is the least that a decision in
lockstep can be: each provider is told an instant and tells a count. It uses what the testbed uses:
the event loop, the options of channels and the kind of certificates, and messages of a grant's
size, but nothing reads or makes them. Echoes are started as providers are, each a program of its
own: copies of one process share its memory, which stays in the CPU's caches from one to the next.

Run as a module, this is either side: `echo`, or `copies`, which becomes N of them, or `client`.
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

from fogveil.channels import OPTIONS
from fogveil.identity import PROVIDER, Credentials, Identity
from testbed.federated.apart import ENVIRONMENT

METHOD = "/fogveil.bench.Echo/Run"
WHO = Identity("bench", PROVIDER, "echo")
WARM_UP = 10
"""Rounds before those that count."""


class Fanout:
    """So many echo processes and their client; a context that ends them."""

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
            from testbed.federated.identities import Mint

            folder = str(Mint(WHO.run).issue(WHO, Path(self._folder.name)).folder)
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
    """Become so many echo processes, all copies of this one."""
    for _ in range(int(number) - 1):
        if os.fork() == 0:
            break
    threading.Thread(target=_end_with_input, daemon=True).start()
    uvloop.run(_echo(folder))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


# --- the client ----------------------------------------------------------------------------------


async def _rounds(folder: str, message: bytes, ports: list[str]) -> None:
    """Go round for as many seconds as each line of input says.

    Of five ways to write the loop this is the fastest: a task for each direction of each stream.
    """
    loop = asyncio.get_running_loop()
    calls: list[Any] = [_channel(folder, port).stream_stream(METHOD)() for port in ports]
    for call in calls:
        await call.initial_metadata()
    wanted = [asyncio.Event() for _ in calls]
    left = 0
    complete = loop.create_future()

    async def write(call: Any, wish: asyncio.Event) -> None:
        while await wish.wait():
            wish.clear()
            await call.write(message)

    async def read(call: Any) -> None:
        nonlocal left
        while await call.read() is not aio.EOF:
            left -= 1
            if not left:
                complete.set_result(None)

    async def go_round() -> None:
        nonlocal left, complete
        left, complete = len(calls), loop.create_future()
        for wish in wanted:
            wish.set()
        await complete

    tasks = [asyncio.ensure_future(read(call)) for call in calls]
    tasks += [asyncio.ensure_future(write(*pair)) for pair in zip(calls, wanted, strict=True)]
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for _ in range(WARM_UP):
            await go_round()
        rounds, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < float(line):
            await go_round()
            rounds += 1
        print(rounds / spent, flush=True)
    os._exit(0)


def _channel(folder: str, port: str) -> aio.Channel:
    if folder == "-":
        return aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", WHO.host)]
    credentials = Credentials(Path(folder)).for_channel()
    return aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


if __name__ == "__main__":
    side, where, *rest = sys.argv[1:]
    if side in ("echo", "copies"):
        echo(where, *rest)
    else:
        uvloop.run(_rounds(where, bytes(int(rest[0])), rest[1:]))
