"""The policies, one idea a file; `load` finds them by name, or by the file they lie in."""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

from agent.agents import Entry, load_trained, trained_kind
from agent.policy import AgentView, Level, Policy
from fogveil.errors import InputError


def _entry(module: str, class_name: str, summary: str) -> Entry:
    return Entry(f"agent.policies.{module}", class_name, summary)


POLICIES = {
    "random": _entry("random", "Random", "any node with equal chance"),
    "round-robin": _entry("round_robin", "RoundRobin", "one node after the other"),
    "nearest": _entry("nearest", "Nearest", "the node the cluster hangs on"),
    "fastest": _entry("fastest", "Fastest", "least latency + service time, queues ignored"),
    "electre": _entry("electre", "Electre", "ELECTRE III over five static criteria"),
    "electre-queue": _entry("electre", "ElectreQueue", "ELECTRE III with the queue length"),
    "jsq": _entry("jsq", "JoinShortestQueue", "join the shortest queue"),
    "p2c": _entry("p2c", "PowerOfTwoChoices", "the shorter of two random queues"),
    "lwl": _entry("lwl", "LeastWorkLeft", "least work left"),
    "sed": _entry("sed", "ShortestExpectedDelay", "true mean speeds and counts"),
    "setr": _entry("setr", "ShortestTotalResponse", "the oracle that knows everything"),
    "veil": _entry("veil", "ShippedVeil", "trained on counts: what each decision costs everybody"),
    "veil-total": _entry("veil_total", "VeilTotal", "the total alone: probes, then knows"),
    "ci-setr": _entry("ci_setr", "CountInferredResponse", "counts alone, speeds inferred"),
}


def find(spec: str) -> type[Policy]:
    """Return the class of a policy named in `POLICIES` or given as `file.py:Class`."""
    if spec in POLICIES:
        found: type[Policy] = POLICIES[spec].load()
        return found
    if spec.endswith(".npz"):
        return trained_kind(Path(spec))
    path, class_name = code_of(spec)
    return from_source(read_source(path), path, class_name)


def code_of(spec: str) -> tuple[Path, str]:
    """Return file and class of a policy that is somebody else's code."""
    path, colon, class_name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), class_name
    raise InputError(
        f"no policy is called {spec!r}: expected one of {', '.join(POLICIES)}, "
        "a trained agent's file.npz, or a class of yours as file.py:Class"
    )


def file_of(spec: str) -> Path | None:
    """Return the file that a policy comes from, where it is not one of ours."""
    if spec in POLICIES:
        return None
    return Path(spec if spec.endswith(".npz") else spec.rpartition(":")[0])


def label_of(spec: str) -> str:
    """Return a short name of a policy: its own, its training's folder, or its class."""
    if spec.endswith(".npz"):
        path = Path(spec).resolve()
        return path.parent.name if path.stem in ("agent", "checkpoint") else path.stem
    return spec if spec in POLICIES else spec.rpartition(":")[2]


def is_foreign(spec: str) -> bool:
    """Say whether a policy is somebody else's code."""
    return spec not in POLICIES and not spec.endswith(".npz")


def read_source(path: Path) -> bytes:
    """Read a policy's file."""
    if not path.is_file():
        raise InputError(f"policy file {path} does not exist")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"policy file {path} cannot be read: {error.strerror}") from error


def import_libraries(source: bytes) -> None:
    """Import what a policy's file imports, without running it.

    Whoever becomes another user before it runs the policy may not find the libraries afterwards.
    """
    with suppress(SyntaxError, ValueError):  # said when the policy is loaded
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                with suppress(Exception):
                    import_module(name)


def from_source(source: bytes, path: Path, class_name: str) -> type[Policy]:
    """Run a policy's file and return the class."""
    module = ModuleType(f"_policy_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 (what it is for)
    except (Exception, SystemExit) as error:
        raise InputError(f"policy file {path} cannot be loaded: {spell(error)}") from error
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Policy)):
        raise InputError(f"policy file {path} has no class {class_name} derived from agent.Policy")
    needs: object = found.needs
    if not isinstance(needs, Level):
        raise InputError(f"policy {class_name} in {path}: expected needs to be a Level")
    if inspect.isabstract(found):
        raise InputError(f"policy {class_name} in {path} does not define the method place")
    return found


def load(spec: str, view: AgentView) -> Policy:
    """Make a policy for a run, refusing one that needs more than the providers disclose."""
    return make(spec, find(spec), view)


def make(spec: str, policy: type[Policy], view: AgentView) -> Policy:
    """Make a policy of a class that was found."""
    check_level(spec, policy, view.disclosed)
    if spec.endswith(".npz"):
        return load_trained(Path(spec), view)
    try:
        return policy(view)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if spec in POLICIES:
            raise
        raise InputError(f"policy {spec} cannot start: {spell(error)}") from error


def spell(error: BaseException) -> str:
    """Spell an error of somebody's policy in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def check_level(spec: str, policy: type[Policy], disclosed: Level) -> None:
    """Refuse a policy that needs more than the providers disclose."""
    if policy.needs > disclosed:
        raise InputError(
            f"policy {spec} needs disclosure level {policy.needs.word!r}, "
            f"but the providers disclose {disclosed.word!r} "
            f"(--disclosure {policy.needs.word} makes them tell it)"
        )
