"""A Docker engine for the tests: the one that runs here, or one of our own for as long as needed.

Where no image can be pulled, Debian's packages stand for the public ones: a base with Python and a
wheelhouse under the name python:3.11-slim, and mosquitto under the name eclipse-mosquitto:2. So
the Dockerfile and the compose files are used as they are. What is slow to make is kept in
`.venv/docker`; everything else on the machine is put back as it was.
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
CACHE = ROOT / ".venv" / "docker"
PYTHON, MOSQUITTO = "python:3.11-slim", "eclipse-mosquitto:2"
DEBIAN = "fogveil-test-debian"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
START_WITHIN = 60.0
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
TABLES = ("filter", "nat")
"""What an engine changes of the packet filter."""
EMPTY = {
    "filter": ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
    "nat": ":PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    ":POSTROUTING ACCEPT [0:0]\n",
}
PR_SET_PDEATHSIG = 1


class EngineError(Exception):
    """Why there is no engine."""


@contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Yield the environment in which `docker`, compose and the SDK find an engine with images."""
    with ExitStack() as stack:
        found = dict(os.environ)
        if not _answers(found):
            found = stack.enter_context(_own_engine())
        _provide_compose(found)
        yield found


def _answers(environment: dict[str, str]) -> bool:
    scheme, _, path = environment.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme == "unix":  # a client that finds nobody leaves its sockets open
        with socket.socket(socket.AF_UNIX) as knocking:
            if knocking.connect_ex(path):
                return False
    try:
        client = docker.from_env(environment=environment)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


def run(*words: str | Path, **more: object) -> str:
    """Run a command; what it said is the reason where it fails."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **more
    )
    if done.returncode:
        raise EngineError(f"{words[0]} {words[1]}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


# --- an engine of our own ----------------------------------------------------------------------


@contextmanager
def _own_engine() -> Iterator[dict[str, str]]:
    if os.geteuid() != 0:
        raise EngineError("no Docker engine answers, and only root can start one: start Docker")
    _install({"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"})
    CACHE.mkdir(parents=True, exist_ok=True)
    state = Path(f"/tmp/fogveil-engine-{os.getpid()}")  # a socket's path must be short
    state.mkdir(mode=0o700)
    environment = {**os.environ, "DOCKER_HOST": f"unix://{state}/socket", "DOCKER_BUILDKIT": "0"}
    with _as_it_was(), (CACHE / "dockerd.log").open("wb") as log:
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
def _as_it_was() -> Iterator[None]:
    """Put the packet filter, forwarding and the bridge back: an engine leaves them changed."""
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
    """Make stand-ins for the public images, unless they are there."""
    images = docker.from_env(environment=environment)
    try:
        tags = {tag for image in images.images.list() for tag in image.tags}
    finally:
        images.close()
    if f"{DEBIAN}:latest" not in tags:
        _install({"mmdebstrap": "mmdebstrap"})
        archive = CACHE / "debian.tar"
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", archive)
        run("docker", "import", archive, DEBIAN, env=environment)
        archive.unlink()
    pins = (ROOT / "constraints.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    noted = CACHE / "pins"
    if PYTHON not in tags or not noted.exists() or noted.read_bytes() != pins:
        _make_python(environment)
        noted.write_bytes(pins)
    if MOSQUITTO not in tags:
        _make_mosquitto(environment)


def _build(environment: dict[str, str], tag: str, folder: Path, text: str) -> None:
    (folder / "Dockerfile").write_text(text)
    run("docker", "build", "--quiet", "--tag", tag, folder, env=environment)


def _make_python(environment: dict[str, str]) -> None:
    """Give the base a wheelhouse made here, where pip knows an index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    place = CACHE / "python"
    (place / "wheels").mkdir(parents=True, exist_ok=True)
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"),
        *("--dest", place / "wheels", "--constraint", ROOT / "constraints.txt", *wanted),
    )
    text = f"""FROM {DEBIAN}
COPY wheels /wheels
RUN for name in python python3 pip; do ln -s /usr/bin/$name /usr/local/bin/$name; done; \\
    ln -sf /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
CMD ["python3"]
"""
    _build(environment, PYTHON, place, text)


def _make_mosquitto(environment: dict[str, str]) -> None:
    """Copy the installed mosquitto with its libraries, laid out as the public image has them."""
    _install({"/usr/sbin/mosquitto": "mosquitto"})
    place = CACHE / "mosquitto"
    shutil.rmtree(place, ignore_errors=True)
    plugin = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"))
    wanted = {Path("/usr/sbin/mosquitto"): "usr/sbin/mosquitto", plugin: f"usr/lib/{plugin.name}"}
    for each in list(wanted):
        for library in re.findall(r"=> (/\S+)", run("ldd", each)):
            if not Path(library).name.startswith(("libc.", "libm.", "libpthread", "ld-")):
                wanted[Path(library)] = f"opt/lib/{Path(library).name}"
    for source, name in wanted.items():
        target = place / "root" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    text = f"""FROM {DEBIAN}
COPY root /
RUN useradd --uid 1883 mosquitto && mkdir -p /mosquitto/config /mosquitto/data /mosquitto/log
ENV LD_LIBRARY_PATH=/opt/lib
VOLUME /mosquitto/data /mosquitto/log
CMD ["/usr/sbin/mosquitto", "-c", "/mosquitto/config/mosquitto.conf"]
"""
    _build(environment, MOSQUITTO, place, text)


# --- compose -----------------------------------------------------------------------------------


def _provide_compose(environment: dict[str, str]) -> None:
    """Get compose, where the command `docker` has none, from Debian's next release."""
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
    place = CACHE / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    text = f"deb [signed-by={keys}] http://deb.debian.org/debian trixie main\n"
    (place / "sources.list").write_text(text)
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "download", "docker-compose", cwd=place)
    run("dpkg-deb", "-x", *place.glob("docker-compose_*.deb"), place / "unpacked")
    plugins.mkdir(parents=True, exist_ok=True)
    shutil.copy(
        place / "unpacked/usr/libexec/docker/cli-plugins/docker-compose", plugins / "docker-compose"
    )
    shutil.rmtree(place)
