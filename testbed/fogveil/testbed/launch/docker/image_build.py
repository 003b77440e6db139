"""Building the images of participants from this package's own files, wherever it is installed.

The Dockerfile says what each image holds. It is built from a folder of the repository's shape: the
checkout itself, or a copy of that shape which is staged from the installed package.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from docker.errors import NotFound

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.identity import AGENT, CLOCK, CLOUD, PROVIDER, SOURCES
from fogveil.testbed.launch.docker.engine_client import engine_errors
from fogveil.testbed.scenario.load import SHIPPED
from fogveil.testbed.source_tree import source_files

PARTICIPANT_ROLES = (PROVIDER, AGENT, SOURCES, CLOCK)
EXPERIMENTER = "testbed"
"""The image that prepares and evaluates a run of `docker compose`."""
MOSQUITTO = "eclipse-mosquitto:2"
"""The public image of the broker."""
SOURCE_LABEL = "org.fogveil.source"
"""Under this label an image carries the digest of the files that it was built from."""
IMAGES = Path(__file__).parent / "images"
BUILD_FILES = ("Dockerfile", "constraints.txt", "pyproject.toml")
"""Files in that folder which belong to the root of a repository; in a checkout, links to those."""


def target_of(role: str) -> str:
    """Return the stage of the Dockerfile that a role runs; the Cloud is a provider, too."""
    return PROVIDER if role == CLOUD else role


def image_of(role: str) -> str:
    """Return the name of a role's image."""
    return f"fogveil-{target_of(role)}"


def checkout() -> Path | None:
    """Return the root of the repository, where the package is used from one."""
    dockerfile = IMAGES / "Dockerfile"
    return dockerfile.resolve().parent if dockerfile.is_symlink() else None


def context_files() -> dict[str, Path]:
    """Return the files that images are built from, by their paths in the repository."""
    files = {name: IMAGES / name for name in BUILD_FILES}
    project = tomllib.loads(files["pyproject.toml"].read_text(encoding="utf-8"))
    folders = project["tool"]["setuptools"]["package-dir"]
    for name, path in source_files().items():
        _, portion, rest = name.split("/", 2)
        if IMAGES not in path.parents:
            files[f"{folders[f'fogveil.{portion}']}/{rest}"] = path
    scenarios = SHIPPED.resolve()
    for path in scenarios.rglob("*.toml"):
        files[f"scenarios/{path.relative_to(scenarios).as_posix()}"] = path
    return files


def stage_context(folder: Path) -> None:
    """Copy the files that images are built from into a folder of the repository's shape."""
    for name, path in context_files().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def context_digest(files: Mapping[str, Path]) -> str:
    """Return a digest that changes with any file that images are built from."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def build_images(api: Any, roles: Iterable[str], progress: Callable[[str], None]) -> None:
    """Build the images of some roles, except those that were built from these very files."""
    digest = context_digest(context_files())
    outdated = [role for role in roles if _digest_of(api, image_of(role)) != digest]
    if not outdated:
        return
    with tempfile.TemporaryDirectory(prefix="fogveil-images-") as folder:
        stage_context(Path(folder))
        for role in outdated:
            progress(
                f"building the image {image_of(role)} "
                "(minutes once, seconds when only the code has changed)"
            )
            _build(api, role, Path(folder), digest, progress)


def _digest_of(api: Any, image: str) -> str | None:
    """Return what an image was built from; None where it does not exist."""
    try:
        labels: Mapping[str, str] = api.inspect_image(image)["Config"]["Labels"] or {}
    except NotFound:
        return None
    return labels.get(SOURCE_LABEL)


def _build(api: Any, role: str, folder: Path, digest: str, progress: Callable[[str], None]) -> None:
    image = image_of(role)
    with engine_errors(f"the image {image} cannot be built"):
        for line in api.build(
            path=str(folder),
            tag=image,
            target=target_of(role),
            buildargs={"SOURCE": digest},
            rm=True,
            forcerm=True,
            decode=True,
        ):
            if "error" in line:
                raise InfrastructureError(f"the image {image} cannot be built: {line['error']}")
            step = line.get("stream", "").strip()
            if step.startswith("Step "):
                progress(f"  {step[:100]}")


def pull_image(api: Any, image: str, progress: Callable[[str], None]) -> None:
    """Pull a public image unless it is there."""
    try:
        api.inspect_image(image)
    except NotFound:
        progress(f"pulling the image {image}")
        with engine_errors(f"the image {image} cannot be pulled"):
            api.pull(image)
