"""`python -m benchmarks.compare_commits OLD NEW`: shows whether two commits behave the same.

Compares the run hash of every shipped scenario under every shipped policy, and what crosses in
recorded federated runs, byte for byte. Exit code 1 if anything differs.

Of a recorded run each stream of messages is compared in its order: who sent what kind of message
to whom by which gRPC method or on which MQTT topic. Left out is what no two runs have in common:

- the run's random name: replaced by zeros of the same length, in topics and in messages;
- network addresses and ports of callers, and how the last calls end: which end sees the other one
  leave first is a matter of the operating system;
- at level total the public keys, certificates and signatures of key announcements, and the values
  of masked shares: their number per message is compared, and their sum, the total.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

from fogveil.v1.total_pb2 import KeyAnnouncement, TotalServiceWatchResponse

FOLDERS = ("proto", "provider_node", "broker", "agent", "testbed")
POLICY_LINE = re.compile(r"^\s+([\w-]+)\s+(none|total|count|full)\s")
SHARE_MODULUS = 2**32
SHARES = "/fogveil.v1.TotalService/Watch"
FAR_END = ("status", "trailing metadata")
"""Kinds of records that depend on who leaves first."""
WINDOWED = """
from {module} import Level, Policy


class Windowed(Policy):
    needs = Level.TOTAL
    decides_ahead = True

    def place(self, seen):
        return seen.job % len(self.view.nodes)
"""
"""A policy whose decisions need no counts, so that windows hold many of them."""
RECORDED = (
    *(("none", "round-robin"), ("total", "windowed.py:Windowed"), ("total", "veil-total")),
    *(("count", "jsq"), ("full", "setr")),
)
"""The federated runs: each level, decisions one by one and in windows."""
Stream = tuple[str, str, str, str]
"""Sender, receiver, method or topic, kind."""


class Difference(NamedTuple):
    """Something that differs, and in what."""

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Tree:
    """The sources of one commit."""

    commit: str
    folder: Path

    @property
    def is_namespaced(self) -> bool:
        """Whether everything is imported as `fogveil.*`; before that, folders were packages."""
        return (self.folder / "testbed" / "fogveil").is_dir()

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `fogveil` of this commit to its end."""
        prefix = "fogveil." if self.is_namespaced else ""
        paths = FOLDERS if self.is_namespaced else (".", "proto")
        path = os.pathsep.join(str(self.folder / name) for name in paths)
        return subprocess.run(
            [sys.executable, "-P", "-m", f"{prefix}testbed.cli", *words],
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )

    def policies(self) -> dict[str, str]:
        """Return the level that each shipped policy needs."""
        lines = self.run("policies").stdout.splitlines()
        matches = filter(None, map(POLICY_LINE.match, lines))
        return {match[1]: match[2] for match in matches}

    def scenarios(self) -> dict[str, Path]:
        """Return the shipped scenarios."""
        return {path.stem: path for path in sorted((self.folder / "scenarios").rglob("*.toml"))}

    def run_hash(self, scenario: str, policy: str, level: str, more: Sequence[str]) -> str:
        """Return the hash of an embedded run, or why there is none."""
        done = self.run(
            *("run", str(self.scenarios()[scenario]), "--json"),
            *("--policy", policy, "--disclosure", level, *more),
        )
        if done.returncode:
            return f"exit code {done.returncode}: {done.stderr.strip().rpartition(': ')[2]}"
        return str(json.loads(done.stdout.splitlines()[-1])["run_hash"])

    def record(
        self, scenario: str, policy: str, level: str, more: Sequence[str]
    ) -> dict[Stream, list[bytes]]:
        """Return what crosses in a federated run."""
        with tempfile.TemporaryDirectory(prefix="fogveil-recorded-") as place:
            module = "fogveil.agent.policy" if self.is_namespaced else "agent.policy"
            own = Path(place, "windowed.py")
            own.write_text(WINDOWED.format(module=module), encoding="utf-8")
            done = self.run(
                *("run", str(self.scenarios()[scenario]), "--policy", policy, "--seed", "1"),
                *(
                    "--disclosure",
                    level,
                    "--federated",
                    "--record",
                    "--broker",
                    "builtin",
                    "--out",
                    "out",
                    *more,
                ),
                cwd=Path(place),
            )
            if done.returncode:
                raise SystemExit(f"{self.commit}: {policy} at level {level}: {done.stderr}")
            return read_streams(Path(place, "out", "participants"))


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Tree]:
    """Check a commit out beside the work at hand."""
    git = ("git", "-C", str(Path(__file__).parent))
    add = [*git, "worktree", "add", "--quiet", "--detach", str(folder), commit]
    subprocess.run(add, check=True)
    try:
        yield Tree(commit, folder)
    finally:
        remove = [*git, "worktree", "remove", "--force", str(folder)]
        subprocess.run(remove, check=True)


# --- recorded runs -------------------------------------------------------------------------------


def read_streams(participants: Path) -> dict[Stream, list[bytes]]:
    """Return the messages of each stream in order, without what differs from run to run."""
    streams: dict[Stream, list[bytes]] = {}
    for path in sorted(participants.glob("*/traffic.jsonl")):
        name = path.parent.name
        run = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))["run"]
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            # Of both ends' records that of the sender counts, of MQTT the only one there is.
            recorder = "to" if record["kind"] in ("delivery", "metadata") else "from"
            if record[recorder] != name or record["kind"] in FAR_END:
                continue
            topic = record["method"].replace(run, "0" * len(run))
            key = record["from"], record["to"], topic, record["kind"]
            content = (
                bytes.fromhex(record["bytes"])
                if "bytes" in record
                else json.dumps(record["text"]).encode()
            )
            streams.setdefault(key, []).append(content.replace(run.encode(), b"0" * len(run)))
    return _without_secrets(streams)


def _without_secrets(streams: dict[Stream, list[bytes]]) -> dict[Stream, list[bytes]]:
    """Blank keys and shares, and add the totals that the shares add up to."""
    totals: list[int] = []
    for key, contents in streams.items():
        _, _, method, kind = key
        if "/keys/" in method:
            streams[key] = [_blank_keys(content) for content in contents]
        elif method == SHARES and kind == "response":
            messages = [TotalServiceWatchResponse.FromString(content) for content in contents]
            shares = [share for message in messages for share in message.shares]
            totals = [a + b for a, b in zip(totals, shares, strict=True)] if totals else shares
            streams[key] = [
                TotalServiceWatchResponse(shares=[0] * len(message.shares)).SerializeToString()
                for message in messages
            ]
    if totals:
        sums = [str(total % SHARE_MODULUS).encode() for total in totals]
        streams["all providers", "agent", SHARES, "sum"] = sums
    return streams


def _blank_keys(content: bytes) -> bytes:
    message: Message = KeyAnnouncement.FromString(content)
    for field in ("public_key", "certificate", "signature"):
        message.ClearField(field)
    return message.SerializeToString(deterministic=True)


def compare_streams(
    old: dict[Stream, list[bytes]], new: dict[Stream, list[bytes]]
) -> list[Difference]:
    """Return the streams that differ."""
    return [
        Difference(" ".join(key), _digest(old.get(key)), _digest(new.get(key)))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _digest(contents: list[bytes] | None) -> str:
    if contents is None:
        return "no such stream"
    joined = b"".join(len(content).to_bytes(8) + content for content in contents)
    return f"{len(contents)} messages, SHA-256 {hashlib.sha256(joined).hexdigest()[:16]}"


# --- the whole comparison ------------------------------------------------------------------------


class Comparison:
    """Both trees, and what was found to differ."""

    def __init__(self, old: Tree, new: Tree, options: argparse.Namespace) -> None:
        self._old, self._new, self._options = old, new, options
        self._console = Console(width=100, highlight=False)
        self.differences: list[Difference] = []
        self.compared = 0

    def _more(self, scenario: str) -> list[str]:
        horizon = self._options.horizon
        words = ["--horizon", str(horizon)] if horizon is not None else []
        for text in self._options.set:
            name, _, override = text.partition(":")
            words += ["--set", override] if name == scenario else []
        return words

    def run_hashes(self) -> None:
        """Compare every scenario under every policy."""
        policies, scenarios = self._old.policies(), list(self._old.scenarios())
        listed = (
            ("policies", str(policies), str(self._new.policies())),
            ("scenarios", str(scenarios), str(list(self._new.scenarios()))),
        )
        self.differences += [Difference(*each) for each in listed if each[1] != each[2]]
        table = Table("scenario", "policies", "run hashes", title="embedded runs, seed as shipped")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for scenario in self._options.scenarios or scenarios:
                more = self._more(scenario)
                cells = [(scenario, policy, level, more) for policy, level in policies.items()]
                old = pool.map(lambda cell: self._old.run_hash(*cell), cells)
                new = pool.map(lambda cell: self._new.run_hash(*cell), cells)
                pairs = list(zip(policies, old, new, strict=True))
                differing = [
                    Difference(f"{scenario} under {policy}", a, b)
                    for policy, a, b in pairs
                    if a != b or a.startswith("exit code")
                ]
                table.add_row(scenario, str(len(pairs)), _verdict(differing))
                self.differences += differing
                self.compared += len(pairs)
        self._console.print(table)

    def recordings(self) -> None:
        """Compare what crosses in a federated run at each level."""
        scenario = self._options.recorded
        titles = ("level", "policy", "streams", "messages", "bytes", "wire")
        table = Table(*titles, title=f"federated runs of {scenario}, recorded")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for level, policy in RECORDED:
                cell = scenario, policy, level, self._more(scenario)
                recording = [pool.submit(tree.record, *cell) for tree in (self._old, self._new)]
                old, new = (each.result() for each in recording)
                differing = compare_streams(old, new)
                contents = [content for stream in old.values() for content in stream]
                sizes = (len(old), len(contents), sum(map(len, contents)))
                table.add_row(level, policy, *(f"{size:,}" for size in sizes), _verdict(differing))
                self.differences += differing
                self.compared += len(old)
        self._console.print(table)

    def close(self) -> int:
        """Print what differs, and the verdict; return the exit code."""
        for where, old, new in self.differences:
            self._console.print(where)
            self._console.print(f"  {self._old.commit}: {old}\n  {self._new.commit}: {new}")
        commits = f"{self._old.commit} and {self._new.commit}"
        if self.differences:
            self._console.print(f"{commits} differ in {len(self.differences)} respects")
            return 1
        self._console.print(f"{commits} are equal in {self.compared} run hashes and streams")
        return 0


def _verdict(differing: Sequence[Difference]) -> str:
    return f"different: {len(differing)}" if differing else "equal"


def main() -> int:
    """Compare two commits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="commit that is known to be good")
    parser.add_argument("new", help="commit to compare with it")
    parser.add_argument("--horizon", type=float, help="simulated time of each run [as shipped]")
    parser.add_argument("--scenarios", nargs="*", help="names of shipped scenarios [all]")
    parser.add_argument("--recorded", default="tiny", help="scenario of the federated runs")
    parser.add_argument(
        "--set",
        metavar="SCENARIO:KEY=VALUE",
        action="append",
        default=[],
        help="replace a key, as in geant:topology.file=/data/Geant2012.graphml",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fogveil-commits-") as place:
        Path(place).chmod(0o755)  # participants run as users of their own
        old, new = Path(place, "old"), Path(place, "new")
        with worktree(options.old, old) as before, worktree(options.new, new) as after:
            comparison = Comparison(before, after, options)
            comparison.recordings()
            comparison.run_hashes()
            return comparison.close()


if __name__ == "__main__":
    sys.exit(main())
