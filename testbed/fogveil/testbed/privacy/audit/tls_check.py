"""The TLS channel checks: certificates, and everything else that is said in a handshake."""

from __future__ import annotations

from collections.abc import Iterator

from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.grpc_habits import observe_habits, observe_mqtt_handshakes
from fogveil.testbed.privacy.audit.traffic import GrpcTraffic, MqttSide, MqttTraffic
from fogveil.testbed.privacy.audit.twins.comparison import first_difference
from fogveil.testbed.privacy.audit.wire_log import Handshake

TLS = "TLSv1.3"
CLOSE_NOTIFY = b"\x01\x00"
"""The alert that ends a connection."""
SMALLEST_CUT = 4096
"""Libraries cut what is longer than a record into parts of more bytes than this."""


def check_certificates(evidence: Evidence) -> Finding:
    """Compare every certificate that was presented with the one that was issued."""
    faults: list[str] = []
    number = 0
    for connection in evidence.wire.connections:
        host = evidence.identity(connection.callee).host
        if connection.server_name != host:
            faults.append(f"{connection}: it asks for the host {connection.server_name!r}")
        for name, shown in (
            (connection.caller, connection.caller_tls),
            (connection.callee, connection.callee_tls),
        ):
            number += len(shown.chain)
            if shown.chain[:1] != [evidence.certificates[name]]:
                faults.append(
                    f"{connection}: {name} presents another certificate than it was given"
                )
            if any(certificate != evidence.authority for certificate in shown.chain[1:]):
                faults.append(f"{connection}: {name} presents a certificate that nobody issued")
            alpn = "" if connection.plane == "mqtt" else "h2"
            if shown.version != TLS or shown.alpn != alpn:
                faults.append(f"{connection}: {name} speaks {shown.version} with {shown.alpn!r}")
    text = (
        f"{number} certificates were presented on {len(evidence.wire.connections)} connections: "
        "each is, byte for byte, the one issued (serial, validity, names, extensions); TLS 1.3, "
        "host names and protocols are as expected"
    )
    return judge("certificates: nothing is hidden in them", text, faults, number)


def check_handshakes(evidence: Evidence) -> Finding:
    """Compare all that both ends chose in a handshake with what the libraries choose by themselves.

    What a broker that is not the built-in one chooses must be the same for everybody.
    """
    faults: list[str] = []
    number = 0
    said_by_broker: list[str] | None = None
    all_traffic: list[GrpcTraffic | MqttTraffic] = [*evidence.traffic.grpc, *evidence.traffic.mqtt]
    for traffic in all_traffic:
        connection = traffic.connection
        host = evidence.identity(connection.callee).host
        mqtt = connection.plane == "mqtt"
        expected = observe_mqtt_handshakes() if mqtt else observe_habits().handshakes
        of_callee = expected.callee
        if mqtt and evidence.plan.broker != "builtin":
            of_callee = said_by_broker = said_by_broker or connection.callee_tls.said.shape()
        for name, tls, usual, side, stream in (
            (connection.caller, connection.caller_tls, expected.caller, traffic.up, connection.up),
            (connection.callee, connection.callee_tls, of_callee, traffic.down, connection.down),
        ):
            number += len(tls.said.messages)
            units = len(side.packets if isinstance(side, MqttSide) else side.frames)
            most = units + 1 + len(stream.content) // SMALLEST_CUT
            found = [*_handshake_faults(tls, host, usual), *_record_faults(tls, units, most)]
            faults += [f"{connection}: {name} {fault}" for fault in found]
    text = (
        f"{number} messages of TLS handshakes: offers, extensions, their order and contents are "
        "those of the installed libraries, apart from random values; records are not padded, and "
        "no more than frames and packets; nothing but the end is an alert"
    )
    return judge("handshakes: TLS says nothing of its own", text, faults, number)


def _handshake_faults(tls: Handshake, host: str, usual: list[str]) -> Iterator[str]:
    shape = tls.said.shape(host)
    if shape != usual:
        yield f"chooses otherwise than usual: {first_difference(usual, shape)}"
    for alert in tls.said.alerts:
        if alert != CLOSE_NOTIFY:
            yield f"sends the alert {alert.hex()}"


def _record_faults(tls: Handshake, units: int, most: int) -> Iterator[str]:
    if tls.said.padding:
        yield f"pads its records with {tls.said.padding} bytes"
    if tls.said.records > most:
        yield f"cuts {units} frames or packets into {tls.said.records} records"
