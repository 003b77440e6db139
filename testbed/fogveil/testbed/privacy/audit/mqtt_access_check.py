"""The MQTT access check: every identity tries every topic, and only those promised are allowed."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fogveil.broker.acl import BrokerSecurity
from fogveil.broker.launcher import start_broker
from fogveil.broker.routing import matches
from fogveil.broker.topics import Topics
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import (
    AGENT,
    AUDITOR,
    BROKER,
    CLOCK,
    CLOUD,
    PROVIDER,
    SOURCES,
    Identity,
    broker_identity,
)
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.launch.interface import BrokerHandle
from fogveil.testbed.launch.process_environment import users_of
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.invalid_credentials import (
    expired_credentials,
    foreign_credentials,
)
from fogveil.testbed.privacy.audit.mqtt_probe import Probe, probe


def is_promised(run: str, roster: Roster, client: Identity | None, attempt: Probe) -> bool:
    """Return whether an operation is allowed by what the docs promise, not by the product."""
    if client is None or client.run != run:
        return False
    if attempt.operation == "connect":
        return True
    topics = Topics(run)
    publish: set[str] = set()
    subscribe: set[str] = set()
    if client.role == AGENT:
        publish = {topics.placement(fog) for fog in roster.fogs}
        subscribe = {topics.all_workloads}
    elif client.role == SOURCES:
        publish, subscribe = {topics.workload(client.name)}, {topics.all_feedback(client.name)}
    elif client.role in (PROVIDER, CLOUD):
        publish = {topics.feedback(owner, client.name) for owner in roster.sources}
        publish.add(topics.keys(client.name))
        subscribe = {topics.all_keys}
        if client.role == CLOUD:
            subscribe.add(topics.all_aggregates)
        else:
            publish.add(topics.aggregate(client.name))
            subscribe.add(topics.placement(client.name))
    if attempt.operation in ("publish", "retain", "will"):
        return attempt.topic in publish
    return any(attempt.topic == known or matches(known, attempt.topic) for known in subscribe)


@contextmanager
def _running_broker(
    choice: str,
    folder: Path,
    credentials: Credentials,
    run: str,
    roster: Roster,
    *,
    contained: bool,
    product: Path | None,
) -> Iterator[BrokerHandle]:
    """Run a broker that is set up as in a run, in a container or as a process."""
    if contained:
        from fogveil.testbed.launch.docker.broker_container import broker_container

        with broker_container(choice, folder, credentials, run, roster) as container:
            yield container
        return
    security = BrokerSecurity.for_run(run, roster, credentials)
    # A copy of the product is somebody's code, which never runs as root.
    user = users_of(secrets.token_hex(16), [BROKER]).get(BROKER) if product else None
    running = start_broker(choice, folder, security=security, user=user, product=product)
    try:
        yield running
    finally:
        running.stop()


def check_mqtt_access(
    broker: str, *, contained: bool = False, product: Path | None = None
) -> Finding:
    """Try every identity at every topic of a broker that is set up as in a run."""
    run = "a" * 32
    roster = Roster(("sources-1", "sources-2"), ("fog-1", "fog-2"), "cloud")
    with tempfile.TemporaryDirectory(prefix="fogveil-audit-") as path:
        folder = Path(path)
        mint = Mint(run)
        (folder / BROKER).mkdir(mode=0o700)
        credentials = mint.issue(broker_identity(run), folder / BROKER / "identity")
        agent = Identity(run, AGENT, AGENT)
        identities = [
            agent,
            *(Identity(run, SOURCES, name) for name in roster.sources),
            *(Identity(run, PROVIDER, name) for name in roster.fogs),
            Identity(run, CLOUD, roster.cloud),
            Identity(run, CLOCK, CLOCK),
            Identity(run, AUDITOR, "auditor"),
        ]
        valid = {
            identity: mint.issue(identity, folder / f"known-{number}")
            for number, identity in enumerate(identities)
        }
        invalid: Mapping[str, Credentials | None] = {
            "no certificate": None,
            "a foreign authority's agent": foreign_credentials(agent, folder / "foreign", mint),
            "an expired agent": expired_credentials(agent, folder / "expired", mint),
        }
        with _running_broker(
            broker,
            folder / BROKER,
            credentials,
            run,
            roster,
            contained=contained,
            product=product,
        ) as running:
            attempts = asyncio.run(probe(running.address, run, roster, valid, invalid))
    by_name = {identity.common_name: identity for identity in identities}
    faults = []
    for each in attempts:
        promised = is_promised(run, roster, by_name.get(each.client), each)
        # A filter narrower than a promised one may be refused: nobody needs it.
        attempted = f"{each.operation} {each.topic or 'here'}"
        if each.allowed and not promised:
            faults.append(f"{each.client} may {attempted}")
        elif each.expected and not each.allowed:
            faults.append(f"{each.client} may not {attempted}, and should")
    allowed = sum(each.allowed for each in attempts)
    evidence = (
        f"{len(attempts):,} attempts at {running.kind} (subscribe, publish, receive, retain, "
        f"will): {allowed} allowed as promised, the others refused"
    )
    promise = "refusals: only the promised identities can use a topic"
    return judge(promise, evidence, faults, len(attempts))
