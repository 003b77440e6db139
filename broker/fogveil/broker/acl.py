"""The access control list of the broker: one table, from which both brokers get their rules.

| identity            | may publish to                         | may subscribe to  |
|---------------------|----------------------------------------|-------------------|
| the agent           | placement/FOG, for every FOG           | workload/+        |
| a sources process   | workload/ITSELF                        | feedback/ITSELF/+ |
| a fog provider      | aggregate/ITSELF, keys/ITSELF and      | placement/ITSELF, |
|                     | feedback/SOURCES/ITSELF, for all       | keys/+            |
| the cloud           | keys/ITSELF, feedback/SOURCES/ITSELF   | aggregate/+,      |
|                     |                                        | keys/+            |
| clock, auditor, ... | nothing                                | nothing           |

All of these are below the prefix of the run. A filter is granted exactly as listed or not at all:
a narrower one is refused as well, since no participant needs it. A subscriber receives whatever
matches its filter; retained messages and wills are subject to the rules for publishing. Every topic
has exactly one publisher, so a topic proves who sent the messages that arrive on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from fogveil.broker.topics import Topics
from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import (
    AGENT,
    CLOUD,
    PROVIDER,
    SOURCES,
    Identity,
    broker_identity,
)
from fogveil.protocol.roster import Roster

Action = Literal["publish", "subscribe"]


class Rights(NamedTuple):
    """The topics that an identity may publish to, and the filters it may subscribe to."""

    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()


NO_RIGHTS = Rights()


def rights(run: str, roster: Roster) -> dict[Identity, Rights]:
    """Return the rights of every participant of a run."""
    topics = Topics(run)
    table = {
        Identity(run, AGENT, AGENT): Rights(
            publish=frozenset(map(topics.placement, roster.fogs)),
            subscribe=frozenset({topics.all_workloads}),
        )
    }
    for name in roster.sources:
        table[Identity(run, SOURCES, name)] = Rights(
            publish=frozenset({topics.workload(name)}),
            subscribe=frozenset({topics.all_feedback(name)}),
        )
    for name in (*roster.fogs, roster.cloud):
        publish = {topics.keys(name), *(topics.feedback(owner, name) for owner in roster.sources)}
        if name == roster.cloud:
            role, subscribe = CLOUD, {topics.all_keys, topics.all_aggregates}
        else:
            role, subscribe = PROVIDER, {topics.all_keys, topics.placement(name)}
            publish.add(topics.aggregate(name))
        table[Identity(run, role, name)] = Rights(frozenset(publish), frozenset(subscribe))
    return table


class AccessList:
    """The rights of a run's identities; everything not listed is refused."""

    def __init__(self, table: Mapping[Identity, Rights]) -> None:
        self.table = table

    @classmethod
    def for_run(cls, run: str, roster: Roster) -> AccessList:
        """Return the list of a run; InputError where two names cannot be distinguished."""
        table = rights(run, roster)
        by_common_name: dict[str, Identity] = {}
        for identity in table:  # mosquitto distinguishes identities by their common names
            other = by_common_name.setdefault(identity.common_name, identity)
            if other != identity:
                raise InputError(
                    f"{identity.role}s {other.name!r} and {identity.name!r} have the same name in "
                    "their certificates: give one of them a shorter name"
                )
        return cls(table)

    def allows(self, identity: Identity | None, action: Action, topic: str) -> bool:
        """Return whether an identity may publish to a topic or subscribe to a filter."""
        if identity is None:
            return False
        return topic in getattr(self.table.get(identity, NO_RIGHTS), action)

    # --- the file in which the built-in broker gets its list --------------------------------------

    def write(self, path: Path) -> None:
        """Write the list into a private file."""
        table = {
            identity.uri: {action: sorted(topics) for action, topics in allowed._asdict().items()}
            for identity, allowed in self.table.items()
        }
        write_private(path, json.dumps(table, indent=1))

    @classmethod
    def read(cls, path: Path) -> AccessList:
        """Return the list in a file; InputError where the file holds none."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                {
                    Identity.parse(uri): Rights(
                        frozenset(allowed["publish"]), frozenset(allowed["subscribe"])
                    )
                    for uri, allowed in table.items()
                }
            )
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is not an access control list: {error}") from error


class BrokerSecurity(NamedTuple):
    """How a broker proves its own identity, and what it lets the other identities do."""

    identity: Identity
    credentials: Credentials
    access: AccessList

    @classmethod
    def for_run(cls, run: str, roster: Roster, credentials: Credentials) -> BrokerSecurity:
        """Return the security of a run's broker, which proves its identity by `credentials`."""
        return cls(broker_identity(run), credentials, AccessList.for_run(run, roster))
