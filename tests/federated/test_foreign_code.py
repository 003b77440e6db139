"""A policy of the user's is untrusted code: where it runs, it can read nothing of the others."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from support import SCENARIOS, make_world
from typer.testing import CliRunner

from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch.policy_requirements import requirements_of

SPY = '''
import gc, json, os, sys
from pathlib import Path
from fogveil.agent.policy import Policy

def look(where):
    """Print who we are, what we can read of the others, and what secrets lie in our memory."""
    names = []
    for folder in ("..", "../..", "PARTICIPANTS"):
        for name in ("fog-1", "fog-2", "fog-3", "cloud", "clock", "sources"):
            try:
                names.append(json.loads(Path(folder, name, "config.json").read_text())["name"])
            except OSError:
                pass
    worlds = sum(type(each).__name__ in ("World", "Mint") for each in gc.get_objects())
    seen = {"where": where, "user": os.getuid(), "read": names, "worlds": worlds}
    print(json.dumps(seen), flush=True)

look("module")

class Spy(Policy):
    def __init__(self, view):
        look("created")
        super().__init__(view)

    def place(self, seen):
        if not seen.job % 50:
            look("placing")
        return 0
'''


def looks(text: str) -> list[dict]:
    """Find what the spy printed among other lines."""
    lines = [line[line.index('{"where"') :] for line in text.splitlines() if '{"where"' in line]
    return [json.loads(line) for line in lines]


def test_a_policy_reads_nothing_of_the_others_from_its_first_line_on(tmp_path, capfd):
    policy = tmp_path / "spy.py"
    out = tmp_path / "out"
    policy.write_text(SPY.replace("PARTICIPANTS", str(out / "participants")))
    arguments = ("up", SCENARIOS / "tiny.toml", "--policy", f"{policy}:Spy", "--broker", "builtin")
    done = CliRunner().invoke(
        app, [*map(str, arguments), "--disclosure", "none", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    seen = looks((out / "testbed.log").read_text())
    assert {"module", "created", "placing"} <= {each["where"] for each in seen}
    # It never ran in this process, which holds all secrets.
    assert not looks(done.output + "".join(capfd.readouterr()))
    for each in seen:
        assert each["worlds"] == 0
        if os.getuid() == 0:  # without root all participants are of one user, as the docs say
            assert each["user"] != 0
            assert each["read"] == []


HELPER = """
import os, sys
print("helper imported by user", os.getuid(), file=sys.stderr, flush=True)
"""
USES_HELPER = """
import helper_of_mine
import colorsys, numpy.polynomial.chebyshev, fogveil.agent.inference.estimator  # imported late
from fogveil.agent.policy import Policy

class Mine(Policy):
    def place(self, seen):
        import wave  # later still
        return 0
"""


@pytest.mark.skipif(os.getuid() != 0, reason="without root all participants are of one user")
def test_a_policys_libraries_are_imported_as_the_agents_user(tmp_path, monkeypatch, capfd):
    """The first version imported them as root: a helper module read every provider's speed."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "helper_of_mine.py").write_text(HELPER)
    (tmp_path / "mine.py").write_text(USES_HELPER)
    path = os.pathsep.join(filter(None, (str(tmp_path / "library"), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    out = tmp_path / "out"
    words = ("up", SCENARIOS / "tiny.toml", "--policy", tmp_path / "mine.py:Mine")
    words += ("--broker", "builtin", "--disclosure", "none", "--out", out)
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output + (out / "testbed.log").read_text()
    text = (out / "testbed.log").read_text() + "".join(capfd.readouterr())
    users = re.findall(r"helper imported by user (\d+)", text)
    assert users
    assert "0" not in users


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_is_asked_of_a_policy_is_asked_as_a_user_without_rights(tmp_path, monkeypatch):
    library = tmp_path / "library"
    library.mkdir()
    (library / "helper_of_mine.py").write_text("import os\nUSER = os.getuid()\n")
    (tmp_path / "mine.py").write_text(
        "import helper_of_mine\nfrom fogveil.agent.policy import Policy\n"
        "assert helper_of_mine.USER != 0\n"
        "class P(Policy):\n    def place(self, seen):\n        return 0\n"
    )
    path = os.pathsep.join(filter(None, (str(library), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    assert requirements_of(f"{tmp_path}/mine.py:P", make_world(disclosure="none"))


def test_a_policy_is_asked_what_it_needs_in_another_process(tmp_path):
    policy = tmp_path / "mine.py"
    policy.write_text(
        "import os, sys\nfrom fogveil.agent.policy import Level, Policy\n"
        f"assert os.getpid() != {os.getpid()}\n"
        "print('no answer of mine')\n"
        "class P(Policy):\n    needs = Level.TOTAL\n    decides_ahead = True\n"
        "    def place(self, seen):\n        return 0\n"
    )
    world = make_world(disclosure="total")
    assert requirements_of(f"{policy}:P", world) == (Level.TOTAL, True, False)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("import os\nos._exit(7)\n", "its process ended with code 7"),
        ("raise KeyError('x')\n", "cannot be loaded: KeyError: 'x'"),
        ("class P: pass\n", "has no class P derived from"),
        ("def (:\n", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_refused_in_a_sentence(tmp_path: Path, body, sentence):
    policy = tmp_path / "mine.py"
    policy.write_text(body)
    with pytest.raises(InputError, match=sentence):
        requirements_of(f"{policy}:P", make_world())
