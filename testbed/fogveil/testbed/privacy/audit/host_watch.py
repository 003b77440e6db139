"""What an auditor sees of the participants on their machine, outside of their connections.

A `HostWatch` samples the system's tables while a run lasts: processes, sockets, locks. Before and
after the run it looks at the places that several users share.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from fogveil.protocol.privileges import raise_file_limit
from fogveil.testbed.launch.process_environment import participants_environment
from fogveil.testbed.launch.testbed import Testbed

SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/var/lock")  # noqa: S108
"""Places in which every user may leave something."""
DEEPEST = 4
SAMPLE_EVERY = 0.1
"""Seconds."""
LARGEST_READ = 2**18
"""Bytes of a file that are searched for secrets."""
LARGEST_SHARED = 2**20
"""Bytes of all files in shared places together that are searched."""
LISTENING = "0A"
INTERNET = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
IPC = ("shm", "sem", "msg")
ENCLOSED = ("NoNewPrivs:\t1",)
"""What the launcher has changed of a participant's attributes where it is enclosed."""
ATTRIBUTES = ("Umask", "Cpus_allowed_list", "Mems_allowed_list", "Seccomp", "NoNewPrivs")
"""Lines of /proc/PID/status that a process can set and that everybody can read."""
NICE, POLICY = 18, 40
"""Fields of /proc/PID/stat, counted from 0."""


class FileFact(NamedTuple):
    """A file, as its folder shows it."""

    path: str
    user: int
    mode: int
    """With its type."""
    size: int
    changed: int
    attributes: tuple[str, ...] = ()
    """Names of extended attributes."""
    content: bytes = b""
    """What a regular file begins with."""


@dataclass
class ProcessFacts:
    """All that was seen of one participant's process and its children, in all samples."""

    command: tuple[str, ...] = ()
    """What the launcher started."""
    listens: set[str] = field(default_factory=set)
    """Sockets that others can reach: `tcp 127.0.0.1:80`, `unix @name`."""
    dials: set[str] = field(default_factory=set)
    """Where it connected to."""
    commands: set[tuple[str, ...]] = field(default_factory=set)
    """Command lines of the process and its children."""
    names: set[str] = field(default_factory=set)
    """Names of the process and of its threads."""
    environments: set[str] = field(default_factory=set)
    attributes: set[tuple[str, ...]] = field(default_factory=set)
    """Priority, CPUs, limits and the like."""
    locks: set[str] = field(default_factory=set)
    exit_code: int | None = None
    samples: int = 0


@dataclass
class HostLog:
    """All that was seen on the machine."""

    processes: dict[str, ProcessFacts] = field(default_factory=dict)
    written: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Size and time of the files that the launcher wrote for each participant, by path."""
    environment: set[str] = field(default_factory=set)
    """The environment that the launcher gives to each participant."""
    listening: dict[str, str] = field(default_factory=dict)
    """Where each participant should listen."""
    told: dict[str, set[str]] = field(default_factory=dict)
    """The addresses that each participant was told to dial."""
    users: dict[str, int] = field(default_factory=dict)
    own_attributes: tuple[str, ...] = ()
    """Those of the launcher, which all processes inherit."""
    folders: dict[str, list[FileFact]] = field(default_factory=dict)
    """What each participant has in its own folder after the run, by path in it."""
    left: list[FileFact] = field(default_factory=list)
    """What is new or changed in shared places."""
    ipc: list[str] = field(default_factory=list)
    """New objects of System V."""
    ipc_users: list[int] = field(default_factory=list)
    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    output: dict[str, list[str]] = field(default_factory=dict)
    """What each participant wrote besides its reports."""


class HostWatch:
    """Fills a `HostLog` while a testbed runs in this context."""

    def __init__(self, ours: Path) -> None:
        raise_file_limit()  # as participants do
        self.log = HostLog(own_attributes=_attributes(os.getpid()))
        self._ours = ours
        """The auditor's own folder, in which the run takes place."""
        self._testbed: Testbed | None = None
        self._stop = Event()
        self._thread = Thread(target=self._sample_often, name="host watch", daemon=True)
        self._before = _shared_files(self._ours)
        self._ipc_before = _ipc_objects()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, testbed: Testbed) -> None:
        """Begin to look at the processes of a testbed."""
        self._testbed = testbed
        if testbed.split.site.namespaces != "none":
            self.log.own_attributes += ENCLOSED
        self.sample()

    def _sample_often(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY):
            self.sample()

    def sample(self) -> None:
        """Look at all processes once."""
        testbed = self._testbed
        if testbed is None:
            return
        children, locks = _children(), _locks()
        for name, participant in tuple(testbed.participants.items()):
            facts = self.log.processes.setdefault(name, ProcessFacts())
            facts.command = tuple(getattr(participant.process, "command", ()))
            for pid in _family(participant.process.pid, children):
                _look_at(pid, facts, locks)
            facts.samples += 1

    def finish(self) -> None:
        """Look at what the run has left, once all participants have ended."""
        testbed, log = self._testbed, self.log
        assert testbed is not None
        split = testbed.split
        log.users = dict(split.users)
        for name, participant in testbed.participants.items():
            log.processes[name].exit_code = participant.process.poll()
            log.output[name] = list(testbed.output.get(name, ()))
            folder = split.folder_of(name)
            log.folders[name] = [
                fact._replace(path=str(path.relative_to(folder)), content=_beginning(fact))
                for path in (folder, *sorted(folder.rglob("*")))
                if (fact := _fact(path))
            ]
        log.written = split.written
        log.environment = {f"{key}={value}" for key, value in participants_environment().items()}
        sockets = split.site.sockets
        log.listening = {
            name: f"unix {sockets.inside(name)}" if sockets else f"tcp {address}"
            for name, address in testbed.addresses.items()
            if testbed.participants[name].port  # at level `none` providers listen nowhere
        }
        after = _shared_files(self._ours)
        changed = [fact for path, fact in after.items() if self._before.get(path) != fact]
        # Most of it is other programs'. What is younger is likelier to be of this run.
        changed.sort(key=lambda fact: fact.changed, reverse=True)
        left_to_read = LARGEST_SHARED
        for fact in changed:
            content = _beginning(fact) if left_to_read > 0 else b""
            left_to_read -= len(content)
            log.left.append(fact._replace(content=content))
        for key, user in _ipc_objects().items():
            if key not in self._ipc_before:
                log.ipc.append(key)
                log.ipc_users.append(user)


# --- processes -----------------------------------------------------------------------------------


def _look_at(pid: int, facts: ProcessFacts, locks: Mapping[int, set[str]]) -> None:
    proc = Path("/proc") / str(pid)
    try:
        command = tuple(filter(None, (proc / "cmdline").read_text().split("\0")))
        environment = (proc / "environ").read_text(errors="replace").split("\0")
        names = set(_thread_names(proc))
        attributes = _attributes(pid)
        listens, dials = _sockets(proc)
    except (OSError, ValueError):
        return  # it has ended
    if not command:
        return  # it is ending
    facts.commands.add(command)
    facts.environments.update(filter(None, environment))
    facts.names.update(names)
    facts.attributes.add(attributes)
    facts.listens |= listens
    facts.dials |= dials
    facts.locks |= locks.get(pid, set())


def _thread_names(proc: Path) -> Iterator[str]:
    for task in (proc / "task").iterdir():
        with suppress(OSError):  # that thread has just ended, and not its process
            yield (task / "comm").read_text().strip()


def _attributes(pid: int) -> tuple[str, ...]:
    proc = Path("/proc") / str(pid)
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    found = [f"nice {fields[NICE - 2]}", f"policy {fields[POLICY - 2]}"]
    lines = (proc / "status").read_text().splitlines()
    found += [line for line in lines if line.startswith(ATTRIBUTES)]
    found.append("oom " + (proc / "oom_score_adj").read_text().strip())
    found += (proc / "limits").read_text().splitlines()
    return tuple(found)


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                text = Path(entry.path, "stat").read_text(errors="replace")
                parent = int(text.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    return children


def _family(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, ()):
        yield from _family(child, children)


def _locks() -> dict[int, set[str]]:
    """Return the file locks that everybody can see, by process."""
    held: dict[int, set[str]] = {}
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "->" not in words:
                held.setdefault(int(words[4]), set()).add(" ".join((words[1], *words[5:])))
    return held


def _sockets(proc: Path) -> tuple[set[str], set[str]]:
    """Return where a process can be reached, and where it has connected to."""
    inodes = set()
    for descriptor in (proc / "fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listens, dials, remotes = set(), set(), []
    for kind in INTERNET:
        for words in _table(proc / "net" / kind):
            local, remote, state, inode = words[1], words[2], words[3], words[9]
            if inode not in inodes:
                continue
            if state == LISTENING or not kind.startswith("tcp"):
                listens.add(f"{kind.removesuffix('6')} {_address(local)}")
            else:
                remotes.append((_address(local), _address(remote)))
    own = {each.partition(" ")[2] for each in listens}
    dials = {remote for local, remote in remotes if local not in own}
    for words in _table(proc / "net" / "unix"):
        if words[6] in inodes and len(words) > 7:  # noqa: PLR2004 (it has a name)
            listens.add(f"unix {words[7]}")
    return listens, dials


def _table(path: Path) -> Iterator[list[str]]:
    try:
        lines = path.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return
    yield from (line.split() for line in lines)


def _address(text: str) -> str:
    """Return host:port of an address as the kernel writes it.

    >>> _address("0100007F:1F90")
    '127.0.0.1:8080'
    """
    host, _, port = text.partition(":")
    packed = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6  # noqa: PLR2004 (IPv4)
    name = socket.inet_ntop(family, packed).removeprefix("::ffff:")  # IPv4 in an IPv6 socket
    return f"{name}:{int(port, 16)}"


# --- shared places -------------------------------------------------------------------------------


def _shared_files(ours: Path) -> dict[str, FileFact]:
    """Return all that any user could find in the shared places, except the auditor's own folder."""
    found: dict[str, FileFact] = {}
    for place in SHARED:
        _walk(Path(place), ours.absolute(), DEEPEST, found)
    return found


def _walk(folder: Path, ours: Path, depth: int, found: dict[str, FileFact]) -> None:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for path in entries:
        if path == ours or (fact := _fact(path)) is None:
            continue
        is_folder = stat.S_ISDIR(fact.mode)
        # When a folder changed, and how large it is, follows from what is in it.
        found[str(path)] = fact._replace(size=0, changed=0) if is_folder else fact
        if depth and is_folder and fact.mode & stat.S_IXOTH:
            _walk(path, ours, depth - 1, found)


def _fact(path: Path) -> FileFact | None:
    try:
        facts = path.lstat()
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return None
    return FileFact(
        str(path), facts.st_uid, facts.st_mode, facts.st_size, facts.st_mtime_ns, attributes
    )


def _beginning(fact: FileFact) -> bytes:
    """Return what a regular file begins with; anything else could hang."""
    if not stat.S_ISREG(fact.mode):
        return b""
    try:
        descriptor = os.open(fact.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(LARGEST_READ)
    except OSError:
        return b""


def _ipc_objects() -> dict[str, int]:
    """Return the objects of System V with their creators."""
    found: dict[str, int] = {}
    for kind in IPC:
        with suppress(OSError):
            head, *rows = Path("/proc/sysvipc", kind).read_text().splitlines()
            creator = head.split().index("cuid")
            for row in rows:
                words = row.split()
                found[f"{kind} {words[0]} {words[1]}"] = int(words[creator])
    return found
