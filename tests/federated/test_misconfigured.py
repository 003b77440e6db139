"""Wrong configurations and options: one sentence, and an exit code."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from federated_support import (
    Parts,
    embedded_hash,
    fogveil,
    last_words,
    make_scenario,
    participant,
    port_of,
)
from support import ROOT

from fogveil.agent.settings import AgentSettings
from fogveil.broker.launcher import start_broker
from fogveil.clock.settings import ClockSettings
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.settings import read_settings
from fogveil.provider_node.settings import ProviderSettings
from fogveil.sources.settings import SourcesSettings
from fogveil.testbed.cli import main
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan

TINY = ROOT / "scenarios/tiny.toml"
CLOCK = "127.0.0.1:1"
"""An address at which nobody listens."""
KINDS = {
    "clock": ClockSettings,
    "fog-1": ProviderSettings,
    "cloud": ProviderSettings,
    "sources": SourcesSettings,
    "agent": AgentSettings,
}


def config_of(parts: Parts, name: str):
    split = parts.split
    if name == "clock":
        return split.clock()
    if name == "agent":
        return split.agent(CLOCK, dict.fromkeys((*split.roster.fogs, "cloud"), CLOCK))
    return split.sources(name, CLOCK) if name == "sources" else split.provider(name, CLOCK)


def end_of(config, module=None):
    with participant(config, module) as process:
        return last_words(process)


# --- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_configuration_without_its_share_is_one_sentence(tmp_path, name):
    config = config_of(Parts(tmp_path), name)
    keys = json.loads(config.read_text())
    for missing in keys:
        config.write_text(json.dumps({key: keys[key] for key in keys if key != missing}))
        with pytest.raises(InputError, match=f"expected the keys .*{missing}"):
            read_settings(config, KINDS[name])
    code, said = end_of(config)
    assert code == 2
    assert f"config.json: expected the keys {', '.join(sorted(keys))}" in said


def test_a_share_of_the_wrong_kind_is_one_sentence(tmp_path):
    config = config_of(Parts(tmp_path), "fog-1")
    share = json.loads(config.read_text())["provider"]
    for wrong, sentence in (
        ({**share, "ipt": "fast"}, "provider.ipt: expected float, got 'fast'"),
        ({**share, "disclosure": "all"}, "provider.disclosure: expected Level, got 'all'"),
        ({"ipt": 3}, 'missing value for field "provider.'),
        (7, "provider: expected ProviderConfig, got 7"),
    ):
        code, said = end_of(Parts.change(config, provider=wrong))
        assert code == 2
        assert f"config.json: {sentence}" in said


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (None, 0o600, "cannot be read: No such file"),
        ("{", 0o600, "is not a configuration"),
        ("\xff", 0o600, "is not a configuration"),
        ("[]", 0o600, "expected the keys awaits, broker, clock"),
        ('{"name": "fog-1"}', 0o600, "expected the keys awaits, broker, clock"),
        ("whole", 0o644, "others can read it (mode 644): chmod 600 it"),
        ("whole", 0o640, "others can read it (mode 640): chmod 600 it"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, content, mode, sentence):
    config = config_of(Parts(tmp_path), "fog-1")
    if content is None:
        config.unlink()
    elif content != "whole":
        config.write_bytes(content.encode("latin-1"))
    if config.exists():
        config.chmod(mode)
    code, said = end_of(config)
    assert code == 2
    assert said.startswith(f"fogveil.provider_node: {config}: {sentence}")


@pytest.mark.parametrize(("key", "value"), [("name", 7), ("lifeline", "yes"), ("owners", 7)])
def test_a_key_of_the_wrong_kind_is_named(tmp_path, key, value):
    code, said = end_of(Parts.change(config_of(Parts(tmp_path), "fog-1"), **{key: value}))
    assert code == 2
    assert f"config.json: {key}: expected " in said


# --- ports and brokers ----------------------------------------------------------------------------


@contextmanager
def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_that_is_taken_is_named(tmp_path):
    parts = Parts(tmp_path)
    with taken_port() as port:
        address = f"127.0.0.1:{port}"
        provider = Parts.change(config_of(parts, "fog-1"), listen=address)
        clock = Parts.change(config_of(parts, "clock"), clock=address)
        for config in (provider, clock):
            code, said = end_of(config)
            assert code == 3
            assert f"cannot listen on {address}: the address is in use" in said


@contextmanager
def answering(answer: bytes):
    """A server that answers every connection with bytes that are not MQTT."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1024)
                        connection.sendall(answer)
            except OSError:
                pass  # the test is over

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_the_loss_of_the_broker_is_reported_to_all(tmp_path, answer):
    parts = Parts(tmp_path)
    with ExitStack() as stack:
        if answer:
            parts.split.broker = stack.enter_context(answering(answer))
        clock = stack.enter_context(participant(parts.split.clock()))
        address = f"127.0.0.1:{port_of(clock)}"
        provider = stack.enter_context(participant(parts.split.provider("fog-1", address)))
        code, said = last_words(provider)
        assert code == 3
        assert f"the broker {parts.split.broker} cannot be reached" in said
        sentence = "the broker was lost at simulated time 0"
        assert last_words(clock) == (3, f"fogveil.clock: {sentence}")


def test_a_run_without_a_broker_does_not_begin(tmp_path):
    command = ("run", TINY, "--policy", "jsq", "--federated", "--insecure", "--broker")
    with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as address:
        for broker, sentence in (
            ("mqtt://127.0.0.1:1", "cannot be reached: Connection refused"),
            (address, "cannot be reached: the server there is not an MQTT broker"),
        ):
            done = fogveil(*command, broker, TMPDIR=str(tmp_path))
            assert done.returncode == 3
            assert done.stderr.splitlines()[-1] == f"fogveil: the broker {broker} {sentence}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("secure", [False, True])
def test_a_run_can_use_a_broker_that_is_running_already(tmp_path, secure):
    """With identities participants have networks of their own, and reach it through a relay."""
    scenario = make_scenario()
    broker = start_broker("builtin", tmp_path)
    try:
        address = broker.address.replace("//", "//me:a%20secret@")
        plan = Plan(("jsq",), broker=address, secure=secure)
        (result,) = run_federated(scenario, plan)
        assert result["run_hash"] == embedded_hash(scenario, "jsq")
        assert result["federated"]["broker"] == "external"
        assert broker.alive()
    finally:
        broker.stop()


# --- participants that are missing ---------------------------------------------------------------


def test_a_participant_without_a_clock_reports_it(tmp_path):
    for name in ("fog-1", "agent", "sources"):
        code, said = end_of(config_of(Parts(tmp_path), name))
        assert code == 3
        assert said.endswith(": the clock was lost at simulated time 0")


def test_a_testbed_that_does_not_start_in_time_names_who_is_late():
    with pytest.raises(InfrastructureError, match="did not start in time: (clock|fog-1)"):
        run_federated(make_scenario(), Plan(("jsq",), patience=0.001))


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Runs a command within this process, which takes a tenth of the time."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fogveil", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGTERM, before)
        return ended.value.code, capfd.readouterr().err

    return call


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--window", 64), "--window 64: jsq looks at counts before each decision"),
        (("--window", 0), "--window 0: expected at least one decision"),
        (("--window", 257, "--policy", "random"), "--window 257: expected 0 to 256 decisions"),
        (("--source-processes", 3), "--source-processes 3: expected 1 to 2, the number of IoT"),
        (("--source-processes", 0), "--source-processes 0: expected 1 to 2"),
        (("--speed", 0), "--speed 0: expected a positive number"),
        (("--broker", "rabbit"), "broker: expected auto, mosquitto, builtin or mqtt"),
        (("--policy", "setr"), "policy setr needs disclosure level 'full'"),
        (("--disclosure", "total", "--policy", "jsq"), "needs disclosure level 'count'"),
        (("--disclosure", "total", "--policy", "random", "--insecure"), "needs identities"),
        (("--out", "/proc/x"), "/proc/x: cannot be written"),
    ],
)
def test_invalid_options_are_refused_before_anything_starts(command, options, sentence):
    code, said = command("up", TINY, "--policy", "jsq", *options)
    assert code == 2, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("fogveil: ")
    assert sentence in last
    assert not list(Path().rglob("config.json"))


def test_options_of_federated_runs_are_refused_without_them(command):
    for options in (("--window", 4), ("--broker", "builtin"), ("--speed", 3)):
        code, said = command("run", TINY, "--policy", "random", *options)
        assert code == 2
        assert "add --federated" in said
