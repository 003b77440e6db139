"""Checkpoints: one file with the complete state of a training, or with the network alone.

A file is a NumPy archive with a JSON header. The header names the agent, the public facts of the
scenario it was trained on (never more), the seed, the versions and the commit.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.learning.actor import Layers
from fogveil.core.errors import InputError
from fogveil.core.files import open_private

HEADER = "header"
FORMAT = 1


class Checkpoint(NamedTuple):
    """The content of a checkpoint."""

    header: dict[str, Any]
    arrays: dict[str, Any]


def write_checkpoint(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a private checkpoint, complete and on disk or not at all."""
    text = json.dumps({"format": FORMAT, **header})
    content: dict[str, Any] = {HEADER: np.frombuffer(text.encode(), np.uint8), **arrays}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_private(part, "wb") as file:  # streamed: a replay buffer may be large
            np.savez(file, **content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint's content; nothing in it is executed."""
    with _archive(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != HEADER}
        return Checkpoint(_header(path, archive), arrays)


def read_header(path: Path) -> dict[str, Any]:
    """Return a checkpoint's header without reading the arrays."""
    with _archive(path) as archive:
        return _header(path, archive)


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            yield archive
    except FileNotFoundError as error:
        raise InputError(f"{path}: the checkpoint does not exist") from error
    except (OSError, ValueError, TypeError, AttributeError, KeyError, EOFError) as error:
        raise InputError(f"{path}: is not a checkpoint of fogveil") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: is not a checkpoint of fogveil") from error


def _header(path: Path, archive: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(archive[HEADER].tobytes())
    if header["format"] != FORMAT:
        raise InputError(f"{path}: checkpoint format {header['format']}, expected {FORMAT}")
    for key in ("agent", "public", "sizes"):
        header[key]  # raises KeyError: no checkpoint of fogveil
    return header


def layers_of(path: Path, checkpoint: Checkpoint) -> Layers:
    """Return the layers of a checkpoint's online network."""
    flat, sizes = checkpoint.arrays.get("learner_online"), checkpoint.header["sizes"]
    size = sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))
    if flat is None or flat.shape != (size,) or not np.isfinite(flat).all():
        raise InputError(f"{path}: expected a network of {size} finite parameters")
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        weights = flat[at : at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((weights, flat[at : at + outputs]))
        at += outputs
    return layers


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return in words where two scenarios' public facts differ that a network depends on."""
    sizes = {
        key: (len(one.get(key, ())), len(other[key])) for key in ("nodes", "clusters", "categories")
    }
    different = [f"{a} {key} against {b}" for key, (a, b) in sizes.items() if a != b]
    if one.get("count") != other["count"]:
        different.append(f"counts {one.get('count')} against {other['count']}")
    return ", ".join(different)
