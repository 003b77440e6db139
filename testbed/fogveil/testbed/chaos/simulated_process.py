"""A participant's process in a simulation: its own code, its own tasks, and an end at once."""

from __future__ import annotations

import asyncio
import contextvars
import json
import signal
import subprocess
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fogveil.core.errors import FogveilError, MisbehaviourError
from fogveil.protocol.identity import Identity
from fogveil.protocol.participant import ENDED_BY_SIGNAL, FAULT
from fogveil.protocol.simulated_host import simulated_host
from fogveil.testbed.chaos.network import Network
from fogveil.testbed.chaos.relay import SimulatedRelay
from fogveil.testbed.chaos.streams import Channel, Server
from fogveil.testbed.launch.interface import Stream

KILLED = -signal.SIGKILL
PORT = 1
"""What a participant reports to listen at: names are the addresses."""
MOST_ROUNDS = 1000
"""Cancellations of a process's tasks after which it cannot be ended."""

Write = Callable[["SimulatedProcess", Stream, str], None]
"""Takes a line that a process writes to one of its standard streams."""


class SimulatedProcess:
    """One process; a participant that is started again gets another one."""

    pid = 0

    def __init__(self, network: Network, identity: Identity, folder: Path, write: Write) -> None:
        self.identity, self.name = identity, identity.name
        self._network, self.folder, self._write = network, folder, write
        self.alive = True
        self.frozen_until = 0.0
        self.methods: dict[str, Any] = {}
        """What it serves, by path."""
        self.code: int | None = None
        self.unread = 0
        """Lines that it wrote and that nobody has read."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self._handlers: list[Callable[[bytes], None]] = []
        self._context = contextvars.copy_context()
        self._context.run(simulated_host.set, self)
        self._main: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        network.machines[self.name] = self

    # --- what its code meets in place of the machine ---------------------------------------------

    def dial(self, address: str) -> Channel:
        """Return a channel to whoever serves at an address."""
        return Channel(self._network, self, address)

    def serve(self, register: tuple[Callable[[Any], None], ...]) -> tuple[Server, int]:
        """Serve some services."""
        server = Server(self.methods)
        for each in register:
            each(server)
        return server, PORT

    def connect_broker(self) -> SimulatedRelay:
        """Return a client of the broker."""
        return SimulatedRelay(self._network, self)

    def report(self, facts: dict[str, Any]) -> None:
        """Take a report to the launcher."""
        self.write("stdout", json.dumps(facts))

    def on_launcher_line(self, handle: Callable[[bytes], None]) -> None:
        """Call a function with every line that the launcher sends."""
        self._handlers.append(handle)

    def write(self, stream: Stream, line: str) -> None:
        """Write a line, for the launcher to read."""
        if self.alive:
            self.unread += 1
            self._write(self, stream, line)

    # --- its life --------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something as a part of it."""
        return self._network.loop.create_task(work, context=self._context.copy())

    def begin(self, serve: Coroutine[Any, Any, None]) -> None:
        """Run its program, unless it was ended before it began."""
        if self.code is not None:
            serve.close()
            return
        self._main = self.spawn(self._run(serve))

    async def _run(self, serve: Coroutine[Any, Any, None]) -> None:
        code = 0
        try:
            await serve
        except FogveilError as error:
            if isinstance(error, MisbehaviourError):
                self.report({"accused": error.who, "sentence": str(error)})
            self.write("stderr", f"{self.name}: {error}")
            code = error.exit_code
        except asyncio.CancelledError:
            code = ENDED_BY_SIGNAL + signal.SIGTERM
        except Exception as error:  # noqa: BLE001 (a fault of ours, as in a real process)
            self.write("stderr", traceback.format_exc())
            self.write("stderr", f"{self.name}: {error!r}")
            code = FAULT
        if self.alive:
            self.exit(code)

    def exit(self, code: int) -> None:
        """Let it be gone, as the system does with a process: what it has open is closed."""
        if not self.alive:
            return
        self.alive = False
        self.code = code
        written = _sizes(self.folder)
        self._network.vanish(self)
        self._ending = self._network.loop.create_task(
            self._end(written if code == KILLED else None), context=contextvars.Context()
        )

    async def _end(self, written: dict[Path, int] | None) -> None:
        for _ in range(MOST_ROUNDS):
            if not self.tasks:
                break
            for task in self.tasks:
                task.cancel()
            await asyncio.sleep(0)
        else:
            raise RuntimeError(f"{self.name} cannot be ended: {self.tasks}")
        if written is None:
            return
        for path, size in _sizes(self.folder).items():  # what it had not flushed is lost
            if size > written.get(path, 0):
                with path.open("r+b") as file:
                    file.truncate(written.get(path, 0))

    async def gone(self) -> None:
        """Wait until nothing of it is left."""
        while self._ending is None:  # noqa: ASYNC110 (virtual time costs nothing)
            await asyncio.sleep(0.01)
        await self._ending

    # --- what the launcher does with it ----------------------------------------------------------

    def poll(self) -> int | None:
        """Return its exit code once it has ended and all its lines were read."""
        return None if self.unread else self.code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        try:
            self._network.loop.run_until_complete(asyncio.wait_for(self.gone(), timeout))
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.name, timeout or 0.0) from None
        assert self.code is not None
        return self.code

    def terminate(self) -> None:
        """Ask it to end."""
        if self._main:
            self._main.cancel()

    def kill(self) -> None:
        """End it by force."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int, /) -> None:
        """End it: no other signal is for it."""
        assert number == signal.SIGKILL
        if self.alive:
            self._network.loop.call_soon(self.exit, KILLED)

    def send_line(self, line: bytes, /) -> None:
        """Let it read a line on its standard input, once it runs."""
        loop = self._network.loop
        loop.call_at(max(self.frozen_until, loop.time()), self._read, line)

    def _read(self, line: bytes) -> None:
        for handle in self._handlers if self.alive else ():
            self._context.copy().run(handle, line)


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def track_tasks(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task that is known to the process whose code has started it (a task factory)."""
    context = options.get("context")
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    host: Any = simulated_host.get() if context is None else context.get(simulated_host)
    if host:
        host.tasks.add(task)
        task.add_done_callback(host.tasks.discard)
    return task
