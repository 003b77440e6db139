"""A Docker engine for the tests: the one that runs here, or one that is started for them.

Where no image can be pulled, images of Debian packages replace the public ones: a base with Python
and a wheelhouse under the name python:3.11-slim, and mosquitto under eclipse-mosquitto:2. So the
Dockerfile and the compose files are used unchanged. What takes long is cached in `.venv/docker`;
everything else on the machine is restored.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import docker

ROOT = Path(__file__).parent.parent.parent
CACHE = (ROOT / ".venv").resolve() / "docker"  # an engine takes no symbolic link
PYTHON, MOSQUITTO = "python:3.11-slim", "eclipse-mosquitto:2"
DEBIAN = "fogveil-test-debian"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
START_WITHIN = 60.0
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
TABLES = ("filter", "nat")
"""The tables of the packet filter that an engine changes."""
EMPTY = {
    "filter": ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
    "nat": ":PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    ":POSTROUTING ACCEPT [0:0]\n",
}
PR_SET_PDEATHSIG = 1


class EngineError(Exception):
    """The reason why there is no engine."""


@contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Yield the environment in which `docker`, compose and the SDK find an engine with images."""
    with ExitStack() as stack:
        environment = dict(os.environ)
        if not _answers(environment):
            environment = stack.enter_context(_own_engine())
        _provide_compose(environment)
        yield environment


def _answers(environment: dict[str, str]) -> bool:
    scheme, _, path = environment.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme == "unix":  # a client that cannot connect leaves its sockets open
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path):
                return False
    try:
        client = docker.from_env(environment=environment)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return its output; where it fails, its output is the reason."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise EngineError(f"{command[0]} {command[1]}: {output}")
    return done.stdout


# --- starting an engine ------------------------------------------------------------------------


@contextmanager
def _own_engine() -> Iterator[dict[str, str]]:
    if os.geteuid() != 0:
        raise EngineError("no Docker engine answers, and only root can start one: start Docker")
    _install({"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"})
    CACHE.mkdir(parents=True, exist_ok=True)
    state = Path(f"/tmp/fogveil-engine-{os.getpid()}")  # a socket's path must be short
    state.mkdir(mode=0o700)
    environment = {**os.environ, "DOCKER_HOST": f"unix://{state}/socket", "DOCKER_BUILDKIT": "0"}
    with _restored_network(), (CACHE / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("dockerd", "--data-root", CACHE / "data", "--exec-root", state / "exec"),
                *("-p", state / "pid", "-H", environment["DOCKER_HOST"]),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_us,  # noqa: PLW1509 (no threads yet)
        )
        try:
            _wait(process, environment)
            _provide_images(environment)
            yield environment
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(state, ignore_errors=True)


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], environment: dict[str, str]) -> None:
    deadline = time.monotonic() + START_WITHIN
    while not _answers(environment):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = (CACHE / "dockerd.log").read_text(errors="replace")[-1500:]
            raise EngineError(f"dockerd does not start:\n{tail}")
        time.sleep(0.2)


def _install(packages: dict[str, str]) -> None:
    missing = [package for command, package in packages.items() if not shutil.which(command)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise EngineError(f"no Docker engine answers, and {', '.join(missing)} is not installed")
    run("apt-get", "-qq", "update")
    run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing)


@contextmanager
def _restored_network() -> Iterator[None]:
    """Restore the packet filter, forwarding and bridges: an engine leaves them changed."""
    forwarding = FORWARDING.read_text()
    saved = {table: run("iptables-save", "-t", table) for table in TABLES}
    bridges = _bridges()
    try:
        yield
    finally:
        for table, text in saved.items():
            before = text.strip() or f"*{table}\n{EMPTY[table]}COMMIT"
            run("iptables-restore", "-T", table, input=f"{before}\n")
        FORWARDING.write_text(forwarding)
        for name in _bridges() - bridges:
            run("ip", "link", "delete", name)


def _bridges() -> set[str]:
    names = {path.name for path in Path("/sys/class/net").iterdir()}
    return {name for name in names if name == "docker0" or name.startswith("br-")}


# --- images by their public names --------------------------------------------------------------


def _provide_images(environment: dict[str, str]) -> None:
    """Build replacements for the public images, unless they exist."""
    client = docker.from_env(environment=environment)
    try:
        tags = {tag for image in client.images.list() for tag in image.tags}
    finally:
        client.close()
    if f"{DEBIAN}:latest" not in tags:
        _install({"mmdebstrap": "mmdebstrap"})
        archive = CACHE / "debian.tar"
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", archive)
        run("docker", "import", archive, DEBIAN, env=environment)
        archive.unlink()
    pins = (ROOT / "constraints.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    built_with = CACHE / "pins"
    if PYTHON not in tags or not built_with.exists() or built_with.read_bytes() != pins:
        _build_python(environment)
        built_with.write_bytes(pins)
    if MOSQUITTO not in tags:
        _build_mosquitto(environment)


def _build(environment: dict[str, str], tag: str, folder: Path, text: str) -> None:
    (folder / "Dockerfile").write_text(text)
    run("docker", "build", "--quiet", "--tag", tag, folder, env=environment)


def _build_python(environment: dict[str, str]) -> None:
    """Add a wheelhouse to the base: here pip can reach an index, in a container it cannot."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    folder = CACHE / "python"
    (folder / "wheels").mkdir(parents=True, exist_ok=True)
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"),
        *("--dest", folder / "wheels", "--constraint", ROOT / "constraints.txt", *needed),
    )
    text = f"""FROM {DEBIAN}
COPY wheels /wheels
RUN for name in python python3 pip; do ln -s /usr/bin/$name /usr/local/bin/$name; done; \\
    ln -sf /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
CMD ["python3"]
"""
    _build(environment, PYTHON, folder, text)


def _build_mosquitto(environment: dict[str, str]) -> None:
    """Copy the installed mosquitto with its libraries to where the public image has them."""
    _install({"/usr/sbin/mosquitto": "mosquitto"})
    folder = CACHE / "mosquitto"
    shutil.rmtree(folder, ignore_errors=True)
    plugin = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"))
    needed = {Path("/usr/sbin/mosquitto"): "usr/sbin/mosquitto", plugin: f"usr/lib/{plugin.name}"}
    for each in list(needed):
        for library in re.findall(r"=> (/\S+)", run("ldd", each)):
            if not Path(library).name.startswith(("libc.", "libm.", "libpthread", "ld-")):
                needed[Path(library)] = f"opt/lib/{Path(library).name}"
    for source, name in needed.items():
        target = folder / "root" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    text = f"""FROM {DEBIAN}
COPY root /
RUN useradd --uid 1883 mosquitto && mkdir -p /mosquitto/config /mosquitto/data /mosquitto/log
ENV LD_LIBRARY_PATH=/opt/lib
VOLUME /mosquitto/data /mosquitto/log
CMD ["/usr/sbin/mosquitto", "-c", "/mosquitto/config/mosquitto.conf"]
"""
    _build(environment, MOSQUITTO, folder, text)


# --- compose -----------------------------------------------------------------------------------


def _provide_compose(environment: dict[str, str]) -> None:
    """Download compose from Debian's next release where the command `docker` lacks it."""
    works = subprocess.run(
        ["docker", "compose", "version"], env=environment, capture_output=True, check=False
    )
    if works.returncode == 0:
        return
    plugins = CACHE / "config" / "cli-plugins"
    environment["DOCKER_CONFIG"] = str(plugins.parent)
    if (plugins / "docker-compose").exists():
        return
    if not shutil.which("apt-get"):
        raise EngineError("`docker compose` is missing: install Docker's compose plugin")
    folder = CACHE / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    text = f"deb [signed-by={keys}] http://deb.debian.org/debian trixie main\n"
    (folder / "sources.list").write_text(text)
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "download", "docker-compose", cwd=folder)
    run("dpkg-deb", "-x", *folder.glob("docker-compose_*.deb"), folder / "unpacked")
    plugins.mkdir(parents=True, exist_ok=True)
    shutil.copy(
        folder / "unpacked/usr/libexec/docker/cli-plugins/docker-compose",
        plugins / "docker-compose",
    )
    shutil.rmtree(folder)
