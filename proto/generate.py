"""Make the stubs of the protocol: `make protocol`, or into another folder to compare with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = sorted(path.relative_to(HERE) for path in HERE.glob("fogveil/v1/*.proto"))


def generate(target: Path) -> None:
    """Write stubs and their types below `target`."""
    with_service = [path for path in FILES if "\nservice " in (HERE / path).read_text()]
    _protoc(FILES, f"--python_out={target}", f"--mypy_out=quiet:{target}")
    grpc = f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet,only_async:{target}"
    _protoc(with_service, *grpc)


def _protoc(files: list[Path], *outputs: str) -> None:
    # The plugins for types stand beside the interpreter.
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    words = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", *outputs, *map(str, files)]
    subprocess.run(words, check=True, cwd=HERE, env={**os.environ, "PATH": search})  # noqa: S603


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
