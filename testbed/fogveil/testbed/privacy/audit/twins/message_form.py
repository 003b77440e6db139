"""The canonical form of messages: without what a run draws anew, and without permitted times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography import x509
from google.protobuf.message import DecodeError

from fogveil.protocol.recording import DELIVERY, RESPONSE
from fogveil.testbed.privacy.audit.twins.form import Form
from fogveil.testbed.privacy.inspect.crossing import Crossing

SHARES = "/fogveil.v1.TotalService/Watch"
RESULTS = {"aggregate": "aggregates", "feedback": "results"}
"""Topics whose messages tell entitled receivers when jobs finished: the field that does."""


@dataclass
class MessageForms:
    """Puts messages into canonical form, for runs of one kind."""

    form: Form
    cloud: str
    same_chance: bool
    """Whether the same jobs go on to the Cloud in all runs that are compared."""
    public_sizes: bool
    """Whether the sizes of aggregates and results follow from public facts."""

    def grpc(self, path: str, request: bool, payload: bytes) -> str:  # noqa: FBT001
        """Return the form of a gRPC message."""
        blanked = self.form.blank_bytes(payload)
        if path == SHARES and not request:
            # Shares are random; their sum is compared as a channel of its own.
            crossing = _crossing(path, RESPONSE, payload)
            message = _parsed(crossing)
            if message is not None and message.SerializeToString() == payload:
                return f"{len(message.shares)} shares in {len(payload)} bytes"
        return blanked.hex()

    def mqtt(self, topic: str, payload: bytes) -> str:
        """Return the form of a message at a topic, whose run is blanked."""
        kind = topic.split("/")[3] if topic.count("/") >= 3 else ""  # noqa: PLR2004
        message = _parsed(_crossing(topic, DELIVERY, payload))
        if message is None or message.SerializeToString(deterministic=True) != payload:
            return f"not canonical {self.form.blank_bytes(payload).hex()}"
        if kind in RESULTS:
            return self._results(topic, RESULTS[kind], message, len(payload))
        if kind == "keys":
            return self._announcement(message)
        return self.form.blank_bytes(payload).hex()

    def _results(self, topic: str, field: str, message: Any, size: int) -> str:
        entries = list(getattr(message, field))
        for entry in entries:
            for name in ("arrival", "finished"):
                if name in entry.DESCRIPTOR.fields_by_name:
                    setattr(entry, name, 1.0)
        if topic.endswith(f"/{self.cloud}"):
            # In the order in which they finished: the owners may know it.
            entries.sort(key=lambda entry: entry.job)
        padding = b"".join(getattr(message, "padding", ())).strip(b"\0")
        text = f"{message.DESCRIPTOR.name} {message.episode} {message.sequence} {message.more}"
        if self.public_sizes:
            text += f" {size} bytes"
            if self.same_chance:
                text += " " + " ".join(entry.SerializeToString().hex() for entry in entries)
        return f"{text} padding {padding.hex()}" if padding else text

    def _announcement(self, message: Any) -> str:
        """Return the form of a key announcement: keys, certificates and signatures are drawn."""
        form = self.form
        certificate = certificate_form(form, message.certificate)
        return form.blank(
            f"{message.run} {message.name} {message.epoch} {list(message.membership)} "
            f"{message.level} key of {len(message.public_key)} {certificate}"
        )


def certificate_form(form: Form, der: bytes) -> str:
    """Return all of a certificate but its keys, serial number, dates and signature."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        dates = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        extensions = [
            f"{extension.oid.dotted_string} {extension.critical} {_extension(extension.value)}"
            for extension in certificate.extensions
        ]
        text = (
            f"{certificate.version} {certificate.subject.rfc4514_string()} "
            f"{certificate.issuer.rfc4514_string()} {dates} "
            f"{certificate.signature_algorithm_oid.dotted_string} {extensions}"
        )
    except ValueError:
        return f"no certificate: {der.hex()}"
    return form.blank(text)


def _extension(value: x509.ExtensionType) -> str:
    """Return an extension without the identifiers of keys, which are random."""
    kinds = x509.SubjectKeyIdentifier, x509.AuthorityKeyIdentifier
    return "" if isinstance(value, kinds) else value.public_bytes().decode("latin-1")


def sums_of_shares(members: Iterable[list[int]]) -> list[str]:
    """Return the sum of all members' shares at each index, or why there is none."""
    lists = list(members)
    if len({len(shares) for shares in lists}) != 1:
        return [f"members sent {[len(shares) for shares in lists]} shares"]
    return list(map(str, (np.array(lists, np.uint64).sum(axis=0) % 2**32).tolist()))


def shares_in(payload: bytes) -> list[int]:
    """Return the shares in a response of the total's service."""
    message = _parsed(_crossing(SHARES, RESPONSE, payload))
    return [] if message is None else list(message.shares)


def _crossing(method: str, kind: str, payload: bytes) -> Crossing:
    return Crossing(0.0, 0.0, "", "", method, kind, payload)


def _parsed(crossing: Crossing) -> Any:
    """Return the message, or None if it does not parse."""
    try:
        return crossing.message
    except DecodeError:
        return None
