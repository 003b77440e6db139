"""Issuing certificates: one authority per run, whose key never leaves the launcher's memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fogveil.core.files import write_private
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity

LIFETIME = timedelta(days=30)
SLACK = timedelta(minutes=5)
"""How far a certificate is valid before it was issued: clocks of different hosts differ."""


class Mint:
    """The certificate authority of one run; no other run trusts it."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.issued: dict[Path, bytes] = {}
        """Every certificate (DER) by the folder it was written to, for an auditor to compare."""
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

    @property
    def authority(self) -> bytes:
        """The authority's own certificate (DER)."""
        return self._certificate.public_bytes(serialization.Encoding.DER)

    def issue(
        self, identity: Identity, folder: Path, lifetime: tuple[datetime, datetime] | None = None
    ) -> Credentials:
        """Write a participant's key, its certificate and the authority's into a folder."""
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
        self.issued[folder] = certificate.public_bytes(serialization.Encoding.DER)
        credentials = Credentials(folder)
        write_private(
            credentials.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        pem = serialization.Encoding.PEM
        write_private(credentials.certificate, certificate.public_bytes(pem))
        write_private(credentials.authority, self._certificate.public_bytes(pem))
        return credentials


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
