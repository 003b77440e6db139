"""The key and certificates by which a participant proves its identity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fogveil.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Credentials:
    """The three files in a participant's folder: its key (0600), its certificate, the run's CA."""

    folder: Path

    @property
    def key(self) -> Path:
        """The private key."""
        return self.folder / "key.pem"

    @property
    def certificate(self) -> Path:
        """The certificate."""
        return self.folder / "certificate.pem"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that issued all certificates of the run."""
        return self.folder / "authority.pem"

    def _read(self) -> tuple[bytes, bytes, bytes]:
        try:
            return (
                self.authority.read_bytes(),
                self.key.read_bytes(),
                self.certificate.read_bytes(),
            )
        except OSError as error:
            raise InputError(
                f"{error.filename}: the identity cannot be read: {error.strerror}"
            ) from error

    def for_server(self) -> Any:
        """Return what a gRPC server proves itself with; it asks every client for the same."""
        authority, key, certificate = self._read()
        return grpc.ssl_server_credentials(
            [(key, certificate)], root_certificates=authority, require_client_auth=True
        )

    def for_channel(self) -> Any:
        """Return what a gRPC client proves itself with."""
        return grpc.ssl_channel_credentials(*self._read())
