"""A container as a testbed sees a participant's process."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import requests
from docker.errors import APIError, NotFound

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.launch.interface import Stream
from fogveil.testbed.launch.output_reader import OutputReader

FRAME = struct.Struct(">BxxxL")
"""Before each piece of a container's output: the number of its stream, and its length."""
STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}


class FrameDecoder:
    """Splits what the engine sends of a container into the container's two streams."""

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, chunk: bytes) -> Iterator[tuple[Stream, bytes]]:
        """Yield the pieces that are complete by now."""
        self._rest += chunk
        while len(self._rest) >= FRAME.size:
            stream, size = FRAME.unpack_from(self._rest)
            end = FRAME.size + size
            if len(self._rest) < end:
                return
            piece, self._rest = self._rest[FRAME.size : end], self._rest[end:]
            yield STREAMS[stream], piece


class ContainerProcess:
    """A container that was created; it is started once its output can be read."""

    def __init__(self, api: Any, container: str, name: str, output: OutputReader) -> None:
        self._api, self._container, self._name = api, container, name
        self._output = output
        self._exit_code: int | None = None
        self._stream: Any = api.attach_socket(
            container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        )
        output.add(name, self._stream, FrameDecoder())
        api.start(container)
        self.pid: int = api.inspect_container(container)["State"]["Pid"]

    def disconnect(self) -> None:
        """Close its streams, and the connection that carries them."""
        # The SDK keeps the connection there, and offers no other way to it.
        self._stream._response.close()  # noqa: SLF001

    def poll(self) -> int | None:
        """Return its exit code once it has ended; its streams end with it."""
        if self._exit_code is None and not self._output.is_open(self._name):
            with suppress(subprocess.TimeoutExpired):  # the engine has closed the streams instead
                self.wait(1.0)
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        if self._exit_code is None:
            try:
                self._exit_code = self._api.wait(self._container, timeout=timeout)["StatusCode"]
            except NotFound:
                self._exit_code = InfrastructureError.exit_code
            except (requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout) as error:
                raise subprocess.TimeoutExpired(self._container, timeout or 0.0) from error
        return self._exit_code

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, if it still runs."""
        with suppress(APIError):  # it is paused, has ended, or somebody has removed it
            self._api.kill(self._container, signal=int(number))

    def send_line(self, line: bytes, /) -> None:
        """Write a line to its standard input; one that has ended reads nothing."""
        with suppress(OSError):
            os.write(self._stream.fileno(), line)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it by force, even if somebody has paused it."""
        with suppress(APIError):
            self._api.unpause(self._container)
        self.send_signal(signal.SIGKILL)

    def facts(self) -> list[str]:
        """Return its command line, environment, labels and mounts, as the engine shows them."""
        description = self._api.inspect_container(self._container)
        config = description["Config"]
        return [
            *(config["Cmd"] or ()),
            *(config["Env"] or ()),
            json.dumps(config["Labels"]),
            json.dumps(description["Mounts"]),
        ]

    def mounts(self) -> list[str]:
        """Return the paths outside that are mounted into it."""
        description = self._api.inspect_container(self._container)
        return [mount["Source"] for mount in description["Mounts"]]

    def execute(self, command: list[str]) -> str:
        """Run a command in it, as its user, and return the command's standard output."""
        execution = self._api.exec_create(self._container, command, stderr=True)["Id"]
        stdout, stderr = self._api.exec_start(execution, demux=True)
        code = self._api.exec_inspect(execution)["ExitCode"]
        if code:
            raise InfrastructureError(
                f"a command in the container of {self._name} failed with exit code {code}: "
                f"{(stderr or b'').decode(errors='replace').strip()}"
            )
        return (stdout or b"").decode()
