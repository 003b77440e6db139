"""System calls of Linux that Python does not offer: mounts, capabilities, process controls."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 32, 4096, 16384
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or with MS_BIND a folder or a file a second time."""
    words = (word.encode() or None for word in (source, target, kind))
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), target)


def detach(target: str) -> None:
    """Unmount a file system and everything below it, now or when the last user has left."""
    _check(_libc.umount2(target.encode(), _MNT_DETACH), target)


def pivot_root(new: str, old: str) -> None:
    """Make a mounted folder the root; the old root is found at `old`, a folder below it."""
    number = _PIVOT_ROOT[platform.machine()]
    _check(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), new)


def drop_bounding_set() -> None:
    """Give up, also for every program that is executed later, all capabilities of root."""
    for capability in range(_LAST_CAPABILITY + 1):
        # Refused with EINVAL above the last capability that this kernel knows.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up all capabilities that this process has, and every way to get new ones."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def leave_keyring() -> None:
    """Leave the keyring of the session, which would be shared with all that it started."""
    if number := _KEYCTL.get(platform.machine()):
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def die_with_parent() -> None:
    """Ask to be killed when the parent ends; a change of user withdraws this."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
