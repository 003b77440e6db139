"""Minting identities: one authority per run, whose key never leaves the launcher's memory."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fogveil.identity import Credentials, Identity

LIFETIME = timedelta(days=30)
SLACK = timedelta(minutes=5)
"""Clocks of different hosts differ."""


class Mint:
    """An authority of its own for every run: what one run trusts no other does."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fogveil run {run[:40]}")])
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SLACK)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self, identity: Identity, folder: Path, lifetime: tuple[datetime, datetime] | None = None
    ) -> Credentials:
        """Write a participant's key, certificate and authority into its folder."""
        if identity.run != self.run:
            raise ValueError(f"{identity.uri} is not of run {self.run}")
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        begin, end = lifetime or (now - SLACK, now + LIFETIME)
        alternatives: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(identity.uri),
            x509.DNSName(identity.host),
        ]
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)])
            )
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Credentials(folder)
        _write(
            made.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        _write(made.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        _write(made.authority, self._certificate.public_bytes(serialization.Encoding.PEM))
        return made


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
