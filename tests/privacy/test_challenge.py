"""`fogveil audit --challenge`: whose code runs, as whom, and what is told of a bad challenge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, SCENARIOS, make_world
from typer.testing import CliRunner

import fogveil.core.errors
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.policy_requirements import requirements_of
from fogveil.testbed.privacy.audit import challenge, procedure
from fogveil.testbed.privacy.audit.challenge import apply_challenge
from fogveil.testbed.privacy.audit.findings import Finding, Verdict

FOGVEIL = Path(sys.executable).parent / "fogveil"
ERRORS = "fogveil/core/errors.py"
"""A module that every process of ours imports."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="separate users need root")
CLASSES = (ROOT / "proto" / ERRORS).read_text().count("class")


@pytest.fixture
def write_challenge(tmp_path):
    """Return a function that writes a challenge whose `sabotage` has the given lines."""

    def write(*lines: str) -> Path:
        path = tmp_path / "challenge.py"
        body = "".join(f"    {line}\n" for line in lines)
        helpers = "from fogveil.testbed.privacy.audit.sabotage import append, replace\n"
        path.write_text(f"{helpers}def sabotage(product):\n{body}")
        return path

    return write


def appended(module: str, code: str) -> str:
    """Return the line of a challenge that appends code to a module of the product."""
    return f"append(product / {module!r}, {code!r})"


# --- whose code runs, and as whom ----------------------------------------------------------------


def test_participants_and_broker_run_the_copy_and_the_auditor_does_not(write_challenge, tmp_path):
    """None of the copy's code runs as root, although participants start as root."""
    say_who = 'import os, sys\nprint("WHO", os.getuid(), __file__, file=sys.stderr)\n'
    with apply_challenge(write_challenge(appended(ERRORS, say_who))) as applied:
        assert applied.changed == (ERRORS,)
        plan = Plan(policies=("jsq",), broker="builtin", product=applied.product)
        world = make_world(horizon=100, disclosure="count")
        with create_testbed(world, plan, tmp_path / "testbed") as testbed:
            testbed.wait()
            users = testbed.split.users
        said = {name: "\n".join(lines) for name, lines in testbed.output.items()}
        del said["launcher"]
        said["broker"] = (tmp_path / "testbed/participants/broker/broker.log").read_text()
        assert said.keys() == testbed.participants.keys() | {"broker"}
        for name, text in said.items():
            user = users.get(name, os.getuid())
            assert f"WHO {user} {applied.product}/{ERRORS}" in text, name
            assert text.count("WHO") == 1, name
        assert Path(fogveil.core.errors.__file__).is_relative_to(ROOT)
    assert not applied.product.exists()


def test_a_users_policy_is_inspected_by_the_copy(write_challenge, tmp_path):
    policy = tmp_path / "policy.py"
    policy.write_text(
        "from fogveil.agent.policy import Level, Policy\n"
        "class Mine(Policy):\n    needs = Level.COUNT\n    def place(self, seen): return 0\n"
    )
    tmp_path.chmod(0o755)
    world, spec = make_world(), f"{policy}:Mine"
    module, main = "fogveil/agent/policy_inspector.py", 'if __name__ == "__main__":'
    answer = {"needs": "none", "ahead": False, "cloud": False}
    lie = f"inspect_policy = lambda request: {answer}\n{main}"
    line = f"replace(product / {module!r}, {main!r}, {lie!r})"
    with apply_challenge(write_challenge(line)) as applied:
        assert requirements_of(spec, world, applied.product).needs is Level.NONE
    assert requirements_of(spec, world).needs is Level.COUNT


@needs_root
def test_a_challenge_is_no_root_and_changes_the_copy_alone(write_challenge):
    installed = ROOT / "proto" / ERRORS
    lines = (
        "import os",
        f"try: open({str(installed)!r}, 'a')",
        "except PermissionError: text = 'refused'",
        "(product / 'who.txt').write_text(f'{text} {os.getuid()} {os.getgroups()}')",
    )
    with apply_challenge(write_challenge(*lines)) as applied:
        assert applied.changed == ("who.txt",)
        text, user, groups = (applied.product / "who.txt").read_text().split()
        assert (text, groups) == ("refused", "[]")
        assert int(user) != 0
        owners = {path.lstat().st_uid for path in applied.product.rglob("*")}
        assert owners == {0}  # nobody changes it while it is audited


# --- challenges that cannot be used --------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("pass", "it changes nothing of the product"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import os; os._exit(7)", "its process ended with code 7"),
        (f"replace(product / {ERRORS!r}, 'nothing like it', '')", "is there 0 times, expected 1"),
        (
            f"replace(product / {ERRORS!r}, 'class', '', 2)",
            f"there {CLASSES} times, expected 2",
        ),
        ("append(product / 'fogveil/testbed/x.py', '')", "the copy holds the participants' pack"),
        (appended(ERRORS, "def ("), "it leaves files in the product that are not Python"),
        ("(product / 'link').symlink_to('/etc/passwd')", "link is neither a folder nor a plain"),
        ("import os; os.mkfifo(product / 'pipe')", "pipe is neither a folder nor a plain file"),
    ],
)
def test_a_challenge_that_cannot_be_used_is_told_in_one_sentence(write_challenge, line, sentence):
    file = write_challenge(line)
    with pytest.raises(InputError) as caught, apply_challenge(file):
        pass
    assert str(caught.value).startswith(f"challenge {file}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "it defines no function sabotage(product)"), ("def (", "SyntaxError: invalid syntax")],
)
def test_a_file_that_is_no_challenge_is_refused(tmp_path, text, sentence):
    file = tmp_path / "challenge.py"
    file.write_text(text)
    with pytest.raises(InputError, match="challenge") as caught, apply_challenge(file):
        pass
    assert sentence in str(caught.value)


def test_a_missing_file_and_containers_are_refused(tmp_path):
    command = ["audit", str(SCENARIOS / "tiny.toml"), "--challenge", str(tmp_path / "none.py")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError)
    assert "cannot be read: No such file" in str(result.exception)
    result = CliRunner().invoke(app, [*command, "--docker"])
    assert isinstance(result.exception, InputError)
    assert "leave --docker out" in str(result.exception)


def test_a_challenge_has_limited_time(write_challenge, monkeypatch):
    monkeypatch.setattr(challenge, "WITHIN", 0.5)
    file = write_challenge("import time", "time.sleep(3600)")
    with (
        pytest.raises(InputError, match=r"not done within 0\.5 s"),
        apply_challenge(file),
    ):
        pass


# --- the command ---------------------------------------------------------------------------------


def audit_challenge(file: Path) -> subprocess.CompletedProcess[str]:
    command = [FOGVEIL, "audit", SCENARIOS / "tiny.toml", "--horizon", "300", "--json"]
    return subprocess.run(
        [*command, "--challenge", file], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_breakage_that_ends_the_run_is_neither_caught_nor_missed(write_challenge):
    code = "async def serve(settings):\n    raise SystemExit(7)\n"
    result = audit_challenge(write_challenge(appended("fogveil/provider_node/process.py", code)))
    assert result.returncode == 3, result.stderr
    assert "neither caught nor missed, because the run failed: " in result.stderr
    # Whichever of them ends first: all do.
    assert re.search(r"fog-\d failed with exit code 7", " ".join(result.stderr.split()))
    answer = json.loads(result.stdout.splitlines()[-1])["challenge"]
    assert answer["caught_by"] == []
    assert "exit code 7" in answer["failed"]


def test_the_challenge_of_the_docs_is_caught(tmp_path):
    page = (ROOT / "docs/privacy.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "my_leak.py"
    file.write_text(example)
    result = audit_challenge(file)
    assert result.returncode == 1, result.stderr
    checks = json.loads(result.stdout.splitlines()[-1])["challenge"]["caught_by"]
    assert checks
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"the challenge was caught by {', '.join(checks)} (")


def test_a_challenge_that_nothing_notices_is_told(write_challenge, monkeypatch):
    passed = Finding("truth: every count is the true count", Verdict.PASS, "none")
    monkeypatch.setattr(procedure, "run_audit", lambda *_, **__: [passed])
    file = write_challenge(appended(ERRORS, "import wave"))
    command = ["audit", str(SCENARIOS / "tiny.toml"), "--challenge", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        "the audit did not notice the challenge: please report it"
    )
