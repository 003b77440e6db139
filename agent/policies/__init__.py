"""The policies, one idea a file; `load` finds them by name, or by the file they lie in."""

from __future__ import annotations

import importlib.util
import inspect
from importlib.machinery import SourceFileLoader
from pathlib import Path

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
    "ci-setr": _entry("ci_setr", "CountInferredResponse", "counts alone, speeds inferred"),
}


def find(spec: str) -> type[Policy]:
    """Return the class of a policy named in `POLICIES` or given as `file.py:Class`."""
    if spec in POLICIES:
        found: type[Policy] = POLICIES[spec].load()
        return found
    if spec.endswith(".npz"):
        return trained_kind(Path(spec))
    path, colon, class_name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), class_name)
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


def _from_file(path: Path, class_name: str) -> type[Policy]:
    if not path.is_file():
        raise InputError(f"policy file {path} does not exist")
    # The loader keeps a relative path: by the absolute one the agent's user may not come there.
    loader = SourceFileLoader(f"_policy_{path.stem}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
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
    policy = find(spec)
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
