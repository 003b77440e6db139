"""A second certificate, shown to the clock alone, has the provider's speed for a serial number."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "certificates"


def sabotage(product):
    append(
        product / "fogveil/protocol/credentials.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        from datetime import UTC, datetime, timedelta

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        def _certificate_with_secret():
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")])
            now = datetime.now(UTC)
            return (
                x509.CertificateBuilder(name, name, key.public_key(), int(_own["ipt"]))
                .not_valid_before(now)
                .not_valid_after(now + timedelta(days=1))
                .sign(key, hashes.SHA256())
                .public_bytes(serialization.Encoding.PEM)
            )

        def _for_channel(self):
            authority, key, certificate = self._read()
            if _own:
                certificate += _certificate_with_secret()
            return grpc.ssl_channel_credentials(authority, key, certificate)

        Credentials.for_channel = _for_channel
        """,
    )
