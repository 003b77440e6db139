"""One run: in this process, or on a testbed of processes or containers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet

from fogveil.agent.learning.adaptation import AdaptationRequest, parse_adapt
from fogveil.api.policy_specs import AnyPolicy, as_policy, as_spec, check_policy
from fogveil.core.errors import InputError
from fogveil.testbed.engine.adapting_run import run_adapting
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.federated_run import FederatedRun, Watch, testbed_folder
from fogveil.testbed.launch.participant_config import Plan, check_windows
from fogveil.testbed.records.run_records import MemoryRecords
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import build_world

Mode = Literal["embedded", "federated", "docker"]
AnyScenario = Scenario | str | Path | dict[str, Any]
"""A scenario, its file, the name of a shipped one, or the content of a file."""
SEED_BITS = 128
OPTIONS: dict[str, type] = {
    "broker": str,
    "window": int,
    "source_processes": int,
    "speed": Real,
    "record": bool,
    "secure": bool,
    "ports": tuple,
}
"""What a testbed may be given besides, and of which type."""


@dataclass(frozen=True)
class Run:
    """A finished run: what was measured, every job and every decision."""

    record: dict[str, Any] = field(repr=False)
    """The content of run.json."""
    tables: tuple[pa.Table, pa.Table] = field(repr=False)
    """Jobs and decisions; the properties of these names return them."""
    folder: Path | None = None
    """Where the records are, if they were kept."""

    @property
    def summary(self) -> dict[str, Any]:
        """Mean delays, percentiles, utilisation and what else run.json summarises."""
        summary: dict[str, Any] = self.record["summary"]
        return summary

    @property
    def run_hash(self) -> str:
        """The digest of all event times and counts: equal runs have equal ones, in every mode."""
        return str(self.record["run_hash"])

    @property
    def jobs(self) -> pa.Table:
        """One row per workload: who emitted it, who served it, and when."""
        return self.tables[0]

    @property
    def decisions(self) -> pa.Table:
        """One row per decision: what the policy was shown, and which node it chose."""
        return self.tables[1]

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario, with the seed of the run."""
        return load_scenario(self.record["scenario"])

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Return a run from the folder that it was written to."""
        folder = Path(folder)
        try:
            record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            return cls(record, _read_tables(folder), folder)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{folder}: expected the folder of a run, with its run.json"
            ) from error

    def __repr__(self) -> str:
        """Return the run in a line: scenario, policy, seed, delay."""
        record = self.record
        return (
            f"<Run of {record['name']} under {record['label']}, {record['mode']}, seed "
            f"{record['seed']}: Fog loop {self.summary['fog_loop']:.4g}, "
            f"{self.summary['workloads']:,} workloads, hash {self.run_hash[:8]}>"
        )


def run(
    scenario: AnyScenario,
    policy: AnyPolicy,
    *,
    seed: int | None = None,
    mode: Mode = "embedded",
    out: str | Path | None = None,
    progress: Callable[[float, int], None] | None = None,
    adapt: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Run a scenario under a policy and return what happened.

    `policy` is a name, a trained agent's file, `file.py:Class`, a class or an object. `out` keeps
    the records in a folder. `progress` is called with the simulated time and the number of
    decisions. In the modes `federated` and `docker` every participant is a process or a container,
    and `options` are those of `testbed`; without a seed they draw a secret one.

    With `adapt="on"` a trained agent goes on learning while it works, with `adapt="auto"` when it
    notices a drift; `hyperparameters` changes how. What it has learned is in `out`/adapted.
    """
    _check_mode(mode)
    request = _adaptation(adapt, hyperparameters)
    if mode != "embedded":
        options |= {"adapt": adapt, "hyperparameters": hyperparameters} if request else {}
        with testbed(scenario, policy, mode=mode, seed=seed, out=out, **options) as running:
            return running.wait(_progress_watch(progress))
    if options:
        raise InputError(f"{', '.join(options)}: for mode 'federated' or 'docker' only")
    check_policy(policy)
    chosen = as_scenario(scenario, seed)
    memory = MemoryRecords(build_world(chosen))
    folder = None if out is None else Path(out)
    if request:
        record = run_adapting(chosen, as_policy(policy), request, folder, progress, [memory])
    else:
        record = run_embedded(chosen, as_policy(policy), folder, progress, [memory])
    return Run(record, memory.tables(), folder)


@contextmanager
def testbed(
    scenario: AnyScenario,
    policy: AnyPolicy,
    *,
    mode: Mode = "federated",  # noqa: PT028 (no test, whatever its name begins with; likewise below)
    seed: int | None = None,  # noqa: PT028
    out: str | Path | None = None,  # noqa: PT028
    announce: Callable[[str], None] = lambda _line: None,  # noqa: PT028
    adapt: str | None = None,  # noqa: PT028
    hyperparameters: Mapping[str, Any] | None = None,  # noqa: PT028
    **options: Any,
) -> Iterator[RunningTestbed]:
    """Start a testbed and yield it while it runs; leaving the context ends all participants.

    `options` are `broker`, `window`, `source_processes`, `speed`, `record` (keep every message),
    `secure` and `ports`. Without `out` the records are in a temporary folder that is removed at the
    end. `announce` is told what takes long and what is not protected. `adapt` and
    `hyperparameters` are those of `run`.
    """
    _check_mode(mode)
    if mode == "embedded":
        raise InputError("mode 'embedded' has no testbed: use run")
    check_policy(policy)
    if unknown := sorted(options.keys() - OPTIONS.keys()):
        raise InputError(f"{unknown[0]}: no such option; expected one of {', '.join(OPTIONS)}")
    for name, value in options.items():
        if not isinstance(value, OPTIONS[name]):
            raise InputError(f"{name}: expected {OPTIONS[name].__name__}, got {value!r}")
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    chosen = as_scenario(scenario, seed)
    spec = as_spec(policy)
    plan = Plan(
        policies=(spec,),
        contained=mode == "docker",
        adaptation=_adaptation(adapt, hyperparameters),
        **options,
    )
    check_windows(plan, build_world(chosen))
    with ExitStack() as stack:
        folder = stack.enter_context(testbed_folder(None if out is None else Path(out)))
        running = stack.enter_context(FederatedRun(chosen, plan, folder, folder, announce))
        yield RunningTestbed(running, folder, kept=out is not None)


class RunningTestbed:
    """A testbed of processes or containers that are running."""

    def __init__(self, running: FederatedRun, folder: Path, *, kept: bool) -> None:
        self._running, self._kept = running, kept
        self.folder = folder
        """The testbed's folder: a folder per participant, and after the run its records."""

    @property
    def participants(self) -> tuple[str, ...]:
        """The names of all participants that have been started."""
        return tuple(self._running.testbed.participants)

    def wait(self, watch: Watch | None = None) -> Run:
        """Wait for the end of the run and return it; `watch` is called with every report."""
        (record,) = self._running.finish(watch)
        return Run(record, _read_tables(self.folder), self.folder if self._kept else None)


def as_scenario(scenario: AnyScenario, seed: int | None = None) -> Scenario:
    """Return a scenario, with another seed if one is given."""
    chosen = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    return chosen if seed is None else chosen.replace(seed=seed)


def _adaptation(
    adapt: str | None, hyperparameters: Mapping[str, Any] | None
) -> AdaptationRequest | None:
    if adapt is None:
        if hyperparameters:
            raise InputError("hyperparameters: they are for adapt='on' or adapt='auto'")
        return None
    return AdaptationRequest(parse_adapt(adapt), hyperparameters or {})


def _check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise InputError(f"mode {mode!r}: expected one of {', '.join(get_args(Mode))}")


def _progress_watch(progress: Callable[[float, int], None] | None) -> Watch | None:
    if progress is None:
        return None

    def watch(_testbed: Any, _name: str, report: dict[str, Any]) -> None:
        if "clock" in report:
            progress(report["clock"]["time"], report["clock"]["decisions"])

    return watch


def _read_tables(folder: Path) -> tuple[pa.Table, pa.Table]:
    jobs, decisions = (
        pyarrow.parquet.read_table(folder / f"{name}.parquet") for name in ("jobs", "decisions")
    )
    return jobs, decisions
