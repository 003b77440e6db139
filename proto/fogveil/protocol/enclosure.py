"""Encloses a process: `python -P -m fogveil.protocol.enclosure MODULE-OR-PROGRAM ARGUMENTS`.

The launcher starts it in namespaces of its own (see `fogveil.protocol.namespaces`). It builds
a root that holds the system's programs, Python with what this module imports, the participant's own
folder and the sockets that it uses, and nothing else of the machine; it then gives up its
privileges for good, and only then goes on to the module or, given an absolute path, the program.

What to enclose comes on standard input: eight hexadecimal digits with the length, then JSON. A
process that is held waits for one more byte once it is enclosed. What follows on standard input is
left to the module.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from fogveil.core.errors import InfrastructureError
from fogveil.protocol import linux_calls as linux

SOCKETS = "/run/fogveil"
"""Where a participant finds the sockets of those whom it may dial, each in a folder."""
HIDDEN_PACKAGE = "fogveil.testbed"
"""Never needed by a participant, and it ships with scenarios."""
SHARED_PACKAGES = (
    "fogveil.core",
    "fogveil.protocol",
    "fogveil.v1",
    "fogveil.broker",
    "fogveil.api",
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
CONFIGURATION = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types"),
    *("hosts", "host.conf", "nsswitch.conf", "resolv.conf", "gai.conf", "services", "protocols"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust"),
    *("alternatives", "crypto-policies"),
)
"""What Python, TLS and name lookup read in /etc."""
DEVICES = ("null", "zero", "full", "random", "urandom")
PREFIX_PARTS = ("bin", "lib", "lib64", "ssl", "pyvenv.cfg")
"""What of Python's own folders is needed to run it."""
PROCESSORS = "/sys/devices/system/cpu"
PROCESSOR_FILES = ("possible", "present", "online", "kernel_max")
"""Numerical libraries choose their code by these: without them results could differ in the last
bit. Beside them lie counters of how long each processor was idle, which are nobody's business."""
MACHINE_STATISTICS = (
    *("stat", "loadavg", "vmstat", "meminfo", "diskstats", "interrupts", "softirqs", "schedstat"),
    *("pressure", "zoneinfo", "buddyinfo", "pagetypeinfo", "slabinfo", "timer_list", "sched_debug"),
    *("keys", "key-users", "locks", "kcore", "kallsyms", "cmdline", "mdstat", "swaps", "uptime"),
    *("cgroups", "vmallocinfo", "irq", "fs", "sys/fs", "modules", "latency_stats"),
)
"""What /proc tells about the whole machine, the other participants among it."""
OWN = ("/", "/tmp", "/dev", "/dev/shm", "/proc", "/run", "/sys", SOCKETS)  # noqa: S108
"""What a process has of its own, and never the machine's."""
TEMPORARY = "size=256m,mode=1777"
OLD = "/.old"
HEADER = 8
"""Hexadecimal digits of the length."""
GO_ON = b"\n"
"""What a process that is held waits for."""
MOUNT_FLAGS = {
    "ro": linux.MS_RDONLY,
    "nosuid": linux.MS_NOSUID,
    "nodev": linux.MS_NODEV,
    "noexec": linux.MS_NOEXEC,
}


@dataclass(frozen=True, kw_only=True)
class Enclosure:
    """What a process finds of the machine besides the system's programs and Python."""

    folder: str
    """Its own folder, which it may write to and where it starts; empty for none."""
    user: int | None = None
    """The user to become, under root; None in a user namespace, whose capabilities are dropped."""
    sockets: tuple[tuple[str, str], ...] = ()
    """The folders of sockets that it dials: where they are, and by which name it finds them."""
    own_socket: tuple[str, str] | None = None
    """The folder in which it creates its own."""
    readable: tuple[str, ...] = ()
    """Further files and folders that it may read."""
    hidden: tuple[str, ...] = ()
    """Files and folders that it must not find, even within something that it may read."""
    held: bool = False
    """Whether it waits, once it is enclosed, until the launcher lets it go on."""

    def encode(self) -> bytes:
        """Return what is written to the standard input of the process."""
        text = json.dumps(asdict(self)).encode()
        return f"{len(text):0{HEADER}x}".encode() + text

    @classmethod
    def read(cls) -> Enclosure:
        """Read what `encode` returned, and not a byte more, from standard input."""
        plain: dict[str, Any] = json.loads(_read_exactly(int(_read_exactly(HEADER), 16)))
        return cls(**plain)


def _read_exactly(length: int) -> bytes:
    data = b""
    while len(data) < length:
        if not (chunk := os.read(0, length - len(data))):
            raise InfrastructureError("the launcher was lost")
        data += chunk
    return data


def enclose(enclosure: Enclosure, module: str) -> None:
    """Leave the machine for a root of this process's own, and give up all privileges.

    `module` is what will run: its package stays importable.
    """
    umask = os.umask(0o022)
    binds = _binds(enclosure, module)
    hidden = [os.path.realpath(path) for path in (*enclosure.hidden, *_places(HIDDEN_PACKAGE))]
    links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
    temporary = os.path.realpath("/tmp")  # noqa: S108 (any folder serves to mount on)
    linux.mount("tmpfs", temporary, "tmpfs", options="size=16m,mode=755")
    os.mkdir(temporary + OLD)
    linux.pivot_root(temporary, temporary + OLD)
    os.chdir("/")
    for path, target in links.items():
        os.symlink(target, path)
    _add_system()
    for target, source in binds.items():
        _bind(source, target)
    for path in sorted(hidden):  # a folder before what lies in it, which is then gone
        _hide(path)
    writable = ["/tmp", "/dev/shm"]  # noqa: S108 (private ones)
    for source, name in (*enclosure.sockets, *filter(None, (enclosure.own_socket,))):
        _bind(source, f"{SOCKETS}/{name}")
    if enclosure.own_socket:
        writable.append(f"{SOCKETS}/{enclosure.own_socket[1]}")
    if enclosure.folder:
        _bind(enclosure.folder, enclosure.folder)
        writable.append(enclosure.folder)
    linux.detach(OLD)
    os.rmdir(OLD)
    _make_read_only(writable)
    os.chdir(enclosure.folder or "/")
    os.umask(umask)
    _drop_privileges(enclosure.user)


# --- what is visible -----------------------------------------------------------------------------


def _binds(enclosure: Enclosure, module: str) -> dict[str, str]:
    """Return what to show and where it really is; nothing that lies within something else."""
    wanted = [path for path in SYSTEM if not os.path.islink(path)]
    wanted += [f"/etc/{name}" for name in CONFIGURATION]
    wanted += [
        f"{prefix}/{part}" for prefix in (sys.prefix, sys.base_prefix) for part in PREFIX_PARTS
    ]
    wanted += [*sys.path, *_linked_packages(), *_places_of_installed(), *enclosure.readable]
    wanted += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    for package in (*SHARED_PACKAGES, _package(module)):
        wanted += _places(package)
    targets: dict[str, str] = {}
    for path in wanted:
        if path.startswith("/") and path not in OWN and os.path.exists(path):
            for target in (os.path.abspath(path), os.path.realpath(path)):
                targets[target] = os.path.realpath(path)
    shown: dict[str, str] = {}
    for target in sorted(targets):
        if not any(target.startswith(f"{other}/") for other in shown):
            shown[target] = targets[target]
    return shown


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _places(package: str) -> list[str]:
    """Return the folders of one of our packages."""
    spec = find_spec(package) if package.startswith("fogveil.") else None
    return list(spec.submodule_search_locations or ()) if spec else []


def _linked_packages() -> list[str]:
    """Return where packages lie that an installer has linked to instead of copying them."""
    return [
        entry.path
        for folder in filter(os.path.isdir, sys.path)
        for entry in os.scandir(folder)
        if entry.is_symlink()
    ]


def _places_of_installed() -> list[str]:
    """Return where packages lie that setuptools has installed in place, other than ours."""
    return [
        os.path.dirname(place) if place.endswith(".py") else place
        for name, finder in list(sys.modules.items())
        if name.startswith("__editable__")
        for package, place in getattr(finder, "MAPPING", {}).items()
        if package.partition(".")[0] != "fogveil"
    ]


def _bind(source: str, target: str) -> None:
    source = OLD + source
    is_folder = stat.S_ISDIR(os.stat(source).st_mode)
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder and not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    linux.mount(source, target, flags=linux.MS_BIND | linux.MS_REC)


def _add_system() -> None:
    """Add devices, temporary folders and the process table of this namespace."""
    for name in DEVICES:
        _bind(f"/dev/{name}", f"/dev/{name}")
    os.symlink("/proc/self/fd", "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    for path in ("/tmp", "/dev/shm"):  # noqa: S108 (private ones)
        os.makedirs(path)
        flags = linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("tmpfs", path, "tmpfs", flags, TEMPORARY)
    os.mkdir("/proc")
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    for name in MACHINE_STATISTICS:
        _hide(f"/proc/{name}")
    os.makedirs(PROCESSORS)
    for name in PROCESSOR_FILES:
        with suppress(OSError):
            with open(f"{OLD}{PROCESSORS}/{name}", "rb") as source:
                content = source.read()
            with open(f"{PROCESSORS}/{name}", "wb") as copy:
                copy.write(content)


def _hide(path: str) -> None:
    """Put something empty in the place of a file or folder, if it can be seen."""
    if os.path.isdir(path):
        linux.mount("tmpfs", path, "tmpfs", options="size=1m,mode=755")
    elif os.path.exists(path):
        linux.mount("/dev/null", path, flags=linux.MS_BIND)


def _make_read_only(writable: list[str]) -> None:
    """Make every mount read-only but the writable ones, with all the restrictions it had."""
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        mounts = [line.split(" ")[4:6] for line in table]
    for escaped, options in mounts:
        path = escaped.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
        flags = linux.MS_NOSUID
        for word in options.split(","):
            flags |= MOUNT_FLAGS.get(word, 0)
        if not path.startswith("/dev/"):
            flags |= linux.MS_NODEV
        if path not in writable:
            flags |= linux.MS_RDONLY
        linux.mount("", path, flags=linux.MS_REMOUNT | linux.MS_BIND | flags)


# --- privileges ----------------------------------------------------------------------------------


def _drop_privileges(user: int | None) -> None:
    linux.leave_keyring()
    linux.drop_bounding_set()
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    linux.drop_capabilities()
    linux.die_with_parent()


def main() -> None:
    """Enclose this process, then run what the arguments name."""
    # Process 1 of a namespace ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    program, *arguments = sys.argv[1:]
    try:
        enclosure = Enclosure.read()
        with suppress(OSError):
            socket.sethostname("fogveil")
        enclose(enclosure, program)
        if enclosure.held:
            _read_exactly(len(GO_ON))
    except (InfrastructureError, OSError) as error:
        sys.stderr.write(f"{program}: cannot be enclosed: {error}\n")
        os._exit(InfrastructureError.exit_code)
    if program.startswith("/"):
        os.execv(program, [program, *arguments])  # noqa: S606 (the launcher named it; no shell)
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
