"""The policies, one idea a file; `load` finds them by name or by file."""

from __future__ import annotations

import inspect
from pathlib import Path

from fogveil.agent.learning.registry import Entry, load_trained, trained_class
from fogveil.agent.policy import AgentView, Level, Policy
from fogveil.agent.policy_errors import describe_error, policy_error
from fogveil.agent.policy_files import PolicyFiles, load_policy_module, read_policy_files
from fogveil.core.errors import InputError

LONGEST_ANSWER = 86_400
"""Seconds."""


def _entry(module: str, class_name: str, summary: str) -> Entry:
    return Entry(f"fogveil.agent.policies.{module}", class_name, summary)


POLICIES = {
    "random": _entry("random", "Random", "a node drawn at random"),
    "round-robin": _entry("round_robin", "RoundRobin", "the nodes in turn"),
    "nearest": _entry("nearest", "Nearest", "the node the cluster is attached to"),
    "fastest": _entry("fastest", "Fastest", "least latency + service time, queues ignored"),
    "electre": _entry("electre", "Electre", "ELECTRE III over five static criteria"),
    "electre-queue": _entry("electre", "ElectreQueue", "ELECTRE III with the queue length"),
    "jsq": _entry("jsq", "JoinShortestQueue", "join the shortest queue"),
    "p2c": _entry("p2c", "PowerOfTwoChoices", "the shorter of two random queues"),
    "lwl": _entry("lwl", "LeastWorkLeft", "least work left"),
    "sed": _entry("sed", "ShortestExpectedDelay", "shortest delay by true mean speeds and counts"),
    "setr": _entry("setr", "ShortestTotalResponse", "the full-knowledge oracle"),
    "parl": _entry("parl", "ShippedParl", "the paper's agent, trained on the scenario paper"),
    "veil": _entry("veil", "ShippedVeil", "trained on counts: least delay caused to all jobs"),
    "veil-total": _entry(
        "veil_total", "ShippedVeilTotal", "trained on the total: least delay to all jobs"
    ),
    "ci-setr": _entry("ci_setr", "CountInferredResponse", "counts alone, speeds inferred"),
    "ti-setr": _entry("ti_setr", "TotalInferredResponse", "the total alone, speeds inferred"),
}


def find(spec: str) -> type[Policy]:
    """Return the class of a policy: a name in `POLICIES`, a `file.npz` or a `file.py:Class`."""
    if spec in POLICIES:
        kind: type[Policy] = POLICIES[spec].load()
        return kind
    if spec.endswith(".npz"):
        return trained_class(Path(spec))
    path, class_name = parse_file_spec(spec)
    return class_from_files(read_policy_files(path), class_name)


def parse_file_spec(spec: str) -> tuple[Path, str]:
    """Return the file and the class of a user's policy, `file.py:Class`."""
    path, colon, class_name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), class_name
    raise InputError(
        f"no policy is called {spec!r}: expected one of {', '.join(POLICIES)}, "
        "a trained agent's file.npz, or your own class as file.py:Class"
    )


def file_of(spec: str) -> Path | None:
    """Return the file that holds a user's policy or a trained agent; None for a shipped one."""
    if spec in POLICIES:
        return None
    return Path(spec if spec.endswith(".npz") else spec.rpartition(":")[0])


def label_of(spec: str) -> str:
    """Return a short name of a policy: its name, its training's folder, or its class."""
    if spec.endswith(".npz"):
        path = Path(spec).resolve()
        return path.parent.name if path.stem in ("agent", "checkpoint") else path.stem
    return spec if spec in POLICIES else spec.rpartition(":")[2]


def is_foreign(spec: str) -> bool:
    """Return whether a policy is a user's code."""
    return spec not in POLICIES and not spec.endswith(".npz")


def class_from_files(files: PolicyFiles, class_name: str) -> type[Policy]:
    """Run a policy's source and return its class."""
    path = files.path
    try:
        module = load_policy_module(files)
    except (Exception, SystemExit) as error:
        sentence = f"policy file {path} cannot be loaded: {describe_error(error)}"
        raise policy_error(sentence, error) from error
    kind = getattr(module, class_name, None)
    if not (inspect.isclass(kind) and issubclass(kind, Policy)):
        raise InputError(
            f"policy file {path} has no class {class_name} derived from fogveil.agent.policy.Policy"
        )
    needs: object = kind.needs
    if not isinstance(needs, Level):
        raise InputError(f"policy {class_name} in {path}: expected needs to be a Level")
    within: object = kind.answers_within
    if not (isinstance(within, int | float) and 0 < within < LONGEST_ANSWER):
        raise InputError(
            f"policy {class_name} in {path}: expected answers_within to be a positive number of "
            "seconds, below a day"
        )
    if inspect.isabstract(kind):
        raise InputError(f"policy {class_name} in {path} does not define the method place")
    return kind


def load(spec: object, view: AgentView) -> Policy:
    """Return a policy for a run; refuse one that needs more than the providers disclose.

    It is a spec that `find` knows, a class, or a policy, which is given the view and begins anew.
    """
    if isinstance(spec, str):
        return instantiate(spec, find(spec), view)
    if isinstance(spec, Policy):
        check_level(type(spec).__name__, type(spec), view.disclosed)
        spec.view = view
        spec.reset()
        return spec
    if not inspect.isclass(spec) or not issubclass(spec, Policy):
        raise InputError(f"policy {spec!r}: expected a name, a file, or a subclass of Policy")
    return instantiate(spec.__name__, spec, view)


def instantiate(spec: str, kind: type[Policy], view: AgentView) -> Policy:
    """Return a policy of the class that `find` returned for the same spec."""
    check_level(spec, kind, view.disclosed)
    if spec.endswith(".npz"):
        return load_trained(Path(spec), view)
    try:
        return kind(view)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if spec in POLICIES:
            raise
        sentence = f"policy {spec} cannot start: {describe_error(error)}"
        raise policy_error(sentence, error) from error


def check_level(spec: str, kind: type[Policy], disclosed: Level) -> None:
    """Refuse a policy that needs more than the providers disclose."""
    if kind.needs > disclosed:
        raise InputError(
            f"policy {spec} needs disclosure level {kind.needs.word!r}, "
            f"but the providers disclose {disclosed.word!r} "
            f"(--disclosure {kind.needs.word} raises it)"
        )
