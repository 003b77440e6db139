"""What a policy finds of the machine and of the others: with root, without, and without namespaces.

A policy is anybody's code. In the first version it read the scenario's path from the launcher's
command line and then the scenario itself, counted by `sock_diag` the bytes that each provider sent,
left processes behind that outlived the run and, without root, read every provider's configuration.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from as_nobody import NOBODY
from federated_support import FOGVEIL, PATIENCE
from support import SCENARIOS

TESTS = Path(__file__).parent
SECRET = "0.7312345"
"""A number that stands in the scenario's file and nowhere else."""
IDENTITIES = ["root", "user"] if os.getuid() == 0 else ["user"]


class Spied:
    """A run of the spying policy by the command line, and what the policy found."""

    def __init__(self, identity: str, **environment: str) -> None:
        # Not pytest's folder, which only its owner can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="spied-"))
        self.folder.chmod(0o755)  # as people's folders are
        self.scenario, self.out = self.folder / "mine.toml", self.folder / "out"
        self.scenario.write_text(
            f"# {SECRET}\n" + (SCENARIOS / "tiny.toml").read_text(), encoding="utf-8"
        )
        self.token = secrets.token_hex(8)
        listener = socket.create_server(("127.0.0.1", 0))
        abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        abstract.bind(f"\0spied-{self.token}")
        abstract.listen()
        others = [self.out / "participants" / name for name in ("fog-1", "cloud", "clock")]
        targets = {
            "secret": SECRET,
            "token": self.token,
            "abstract": f"spied-{self.token}",
            "port": listener.getsockname()[1],
            "paths": [
                *map(str, (self.scenario, self.out / "testbed.log", *others)),
                *(str(other / "config.json") for other in others),
                f"/proc/{os.getpid()}/cmdline",
            ],
            "writes": ["/", "/etc", "/usr", str(Path(sys.prefix) / "lib")],
        }
        source = (TESTS / "spying_policy.py").read_text()
        policy = self.folder / "spy.py"
        policy.write_text(source.replace('"""{}"""', f'r"""{json.dumps(targets)}"""'))
        command = [FOGVEIL, "run", self.scenario, "--policy", f"{policy}:Spy", "--federated"]
        command += ["--horizon", "300", "--seed", "5", "--broker", "builtin", "--out", self.out]
        if identity == "user" and os.getuid() == 0:
            for path in (self.folder, self.scenario, policy):
                os.chown(path, NOBODY, NOBODY)
            runner = [sys.executable, TESTS / "as_nobody.py"]
            command = [shutil.which("unshare"), "--mount", *runner, *command]
        with listener, abstract:
            done = subprocess.run(
                [*map(str, command)],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                cwd=self.folder,
                env={**os.environ, **environment},
            )
        self.warnings = [line for line in done.stderr.splitlines() if "NOT PROTECTED" in line]
        assert done.returncode == 0, done.stderr + self.log()
        self.record = json.loads((self.out / "run.json").read_text())
        self.found = json.loads((self.out / "participants" / "agent" / "found.json").read_text())

    def log(self) -> str:
        path = self.out / "testbed.log"
        return path.read_text() if path.exists() else ""

    def orphans(self) -> list[str]:
        """Return the processes that the spy left behind."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if self.token.encode() in line:
                lines.append(line.decode())
        return lines


@pytest.fixture(scope="module", params=IDENTITIES)
def enclosed(request):
    spied = Spied(request.param)
    yield request.param, spied
    shutil.rmtree(spied.folder)


def test_the_run_is_enclosed_and_says_so(enclosed):
    identity, spied = enclosed
    assert spied.record["federated"]["namespaces"] == identity
    assert spied.warnings == []
    assert spied.found["user"] != 0


def test_a_policy_reads_neither_the_scenario_nor_anything_of_the_others(enclosed):
    """The first version read the scenario; without root, also every provider's configuration."""
    _, spied = enclosed
    assert spied.found["read"] == []
    assert spied.found["scenarios"] == []
    assert spied.found["writes"] == []


def test_a_policy_sees_no_process_but_its_own(enclosed):
    """The first version saw the launcher's command line, with the scenario and all of --set."""
    _, spied = enclosed
    commands = [line for line in spied.found["commands"] if line]
    assert len(commands) == 1
    assert "fogveil.agent" in commands[0]
    assert "mine.toml" not in commands[0] + json.dumps(spied.found["environment"])
    assert spied.found["statistics"] == []


def test_a_policy_sees_no_socket_of_others(enclosed):
    """The first version read the bytes that each provider had sent to the broker."""
    _, spied = enclosed
    assert (spied.found["tcp"], spied.found["unix"]) == (0, 0)
    assert not spied.found["abstract"]
    assert not spied.found["port"]
    dialled = ["broker", "clock", "cloud", "fog-1", "fog-2", "fog-3"]
    assert spied.found["dialled"] == dialled


def test_what_a_policy_starts_ends_with_the_run(enclosed):
    """The first version left it behind."""
    _, spied = enclosed
    assert spied.found["orphan"]
    assert spied.orphans() == []


@pytest.mark.parametrize("identity", IDENTITIES)
def test_without_namespaces_a_run_says_what_is_not_protected(identity):
    """The first version said nothing. PATH without `unshare` stands for a system without it."""
    spied = Spied(identity, PATH="/nonexistent")
    try:
        assert spied.record["federated"]["namespaces"] == "none"
        text = "\n".join(spied.warnings)
        assert "not enclosed" in text
        assert "how many bytes each provider has sent" in text
        # The warning is true: this is what the policy found.
        assert spied.found["tcp"] > 0
        assert str(spied.scenario) in spied.found["scenarios"]
        config = str(spied.out / "participants" / "fog-1" / "config.json")
        if identity == "root":
            assert f"all secrets in {spied.scenario}" in text
            assert config not in spied.found["read"]
            assert spied.orphans() == []
        else:
            assert "configuration, key and journal of every provider" in text
            assert config in spied.found["read"]
    finally:
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            end_if_orphan(line, spied.token)
        shutil.rmtree(spied.folder)


def end_if_orphan(cmdline: Path, token: str) -> None:
    try:
        if token.encode() in cmdline.read_bytes():
            os.kill(int(cmdline.parent.name), 9)
    except OSError:
        pass
