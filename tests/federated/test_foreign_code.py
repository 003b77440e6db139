"""Somebody's policy is somebody's code: where it runs, it can look at nothing of the others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support import SCENARIOS, make_world
from typer.testing import CliRunner

from fogveil.disclosure import Level
from fogveil.errors import InputError
from testbed.cli.app import app
from testbed.federated.declared import declared

SPY = '''
import gc, json, os, sys
from pathlib import Path
from agent.policy import Policy

def look(where):
    """Note who we are, what we can read of the others, and what secrets lie in our memory."""
    found = []
    for place in ("..", "../..", "PARTICIPANTS"):
        for name in ("fog-1", "fog-2", "fog-3", "cloud", "clock", "sources"):
            try:
                found.append(json.loads(Path(place, name, "config.json").read_text())["name"])
            except OSError:
                pass
    worlds = sum(type(each).__name__ in ("World", "Mint") for each in gc.get_objects())
    seen = {"where": where, "user": os.getuid(), "read": found, "worlds": worlds}
    print(json.dumps(seen), flush=True)

look("module")

class Spy(Policy):
    def __init__(self, view):
        look("made")
        super().__init__(view)

    def place(self, seen):
        if not seen.job % 50:
            look("placing")
        return 0
'''


def looks(text: str) -> list[dict]:
    """Find what the spy printed among other lines."""
    found = [line[line.index('{"where"') :] for line in text.splitlines() if '{"where"' in line]
    return [json.loads(line) for line in found]


def test_a_policy_reads_nothing_of_the_others_from_its_first_line_on(tmp_path, capfd):
    policy = tmp_path / "spy.py"
    out = tmp_path / "out"
    policy.write_text(SPY.replace("PARTICIPANTS", str(out / "participants")))
    words = ("up", SCENARIOS / "tiny.toml", "--policy", f"{policy}:Spy", "--broker", "builtin")
    done = CliRunner().invoke(app, [*map(str, words), "--disclosure", "none", "--out", str(out)])
    assert done.exit_code == 0, done.output
    seen = looks((out / "testbed.log").read_text())
    assert {"module", "made", "placing"} <= {each["where"] for each in seen}
    # Nothing of it ran here, where all secrets are.
    assert not looks(done.output + "".join(capfd.readouterr()))
    for each in seen:
        assert each["worlds"] == 0
        if os.getuid() == 0:  # without root all participants are of one user, as the docs say
            assert each["user"] != 0
            assert each["read"] == []


def test_what_a_policy_declares_is_found_out_in_another_process(tmp_path):
    policy = tmp_path / "mine.py"
    policy.write_text(
        "import os, sys\nfrom agent.policy import Level, Policy\n"
        f"assert os.getpid() != {os.getpid()}\n"
        "print('no answer of mine')\n"
        "class P(Policy):\n    needs = Level.TOTAL\n    decides_ahead = True\n"
        "    def place(self, seen):\n        return 0\n"
    )
    world = make_world(disclosure="total")
    assert declared(f"{policy}:P", world) == (Level.TOTAL, True)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("import os\nos._exit(7)\n", "its process ended with code 7"),
        ("raise KeyError('x')\n", "cannot be loaded: KeyError: 'x'"),
        ("class P: pass\n", "has no class P derived from"),
        ("def (:\n", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path, body, sentence):
    policy = tmp_path / "mine.py"
    policy.write_text(body)
    with pytest.raises(InputError, match=sentence):
        declared(f"{policy}:P", make_world())
