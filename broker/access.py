"""Who may do what at the broker: one table, from which both brokers get their rules.

| identity            | may publish                            | may subscribe to  |
|---------------------|----------------------------------------|-------------------|
| the agent           | placement/FOG, for every FOG           | workload/+        |
| a sources process   | workload/ITSELF                        | feedback/ITSELF/+ |
| a fog provider      | aggregate/ITSELF, keys/ITSELF and      | placement/ITSELF, |
|                     | feedback/SOURCES/ITSELF, for all       | keys/+            |
| the cloud           | keys/ITSELF, feedback/SOURCES/ITSELF   | aggregate/+,      |
|                     |                                        | keys/+            |
| clock, auditor, ... | nothing                                | nothing           |

All of it under the topics of the own run. A filter is granted as it stands here or not at all: one
that asks for less is refused as well, which no participant misses. Whoever may subscribe to a
filter receives what it takes in; retained messages and wills are published like any others. Every
topic has one publisher, so a topic proves who sent what arrives there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from broker.topics import AGENT, Topics
from fogveil import identity as roles
from fogveil.errors import InputError
from fogveil.identity import Credentials, Identity

Action = Literal["publish", "subscribe"]


@dataclass(frozen=True, slots=True)
class Participants:
    """Who takes part in a run, by name."""

    run: str
    sources: tuple[str, ...]
    fogs: tuple[str, ...]
    cloud: str
    agent: str = AGENT

    @property
    def broker(self) -> Identity:
        """The broker's own identity, by which participants know it: there is one broker."""
        return Identity(self.run, roles.BROKER, roles.BROKER)


class Rights(NamedTuple):
    """The topics that somebody may publish to, and the filters to subscribe to."""

    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()


NONE = Rights()


def rights(participants: Participants) -> dict[Identity, Rights]:
    """Return the table for one run."""
    run, sources, fogs, cloud, agent = (
        participants.run,
        participants.sources,
        participants.fogs,
        participants.cloud,
        participants.agent,
    )
    topics = Topics(run)
    table = {
        Identity(run, roles.AGENT, agent): Rights(
            publish=frozenset(map(topics.placement, fogs)),
            subscribe=frozenset({topics.all_workloads}),
        )
    }
    for name in sources:
        table[Identity(run, roles.SOURCES, name)] = Rights(
            publish=frozenset({topics.workload(name)}),
            subscribe=frozenset({topics.all_feedback(name)}),
        )
    for name in (*fogs, cloud):
        publish = {topics.keys(name), *(topics.feedback(owner, name) for owner in sources)}
        if name == cloud:
            subscribe = {topics.all_keys, topics.all_aggregates}
        else:
            publish.add(topics.aggregate(name))
            subscribe = {topics.all_keys, topics.placement(name)}
        role = roles.CLOUD if name == cloud else roles.PROVIDER
        table[Identity(run, role, name)] = Rights(frozenset(publish), frozenset(subscribe))
    return table


class Access:
    """The table of a run; what is not in it is refused, to everybody."""

    def __init__(self, table: Mapping[Identity, Rights]) -> None:
        self.table = table

    @classmethod
    def of(cls, participants: Participants) -> Access:
        """Make the table of a run."""
        table = rights(participants)
        known: dict[str, Identity] = {}
        for identity in table:  # mosquitto tells identities apart by these names
            other = known.setdefault(identity.common_name, identity)
            if other != identity:
                raise InputError(
                    f"{identity.role}s {other.name!r} and {identity.name!r} cannot be told apart "
                    "by their certificates: give one of them a shorter name"
                )
        return cls(table)

    def may(self, identity: Identity | None, action: Action, topic: str) -> bool:
        """Say whether somebody may publish to a topic, or subscribe to a filter."""
        if identity is None:
            return False
        return topic in getattr(self.table.get(identity, NONE), action)

    # --- handed over to the built-in broker -----------------------------------------------------

    def write(self, path: Path) -> None:
        """Write the table into a file that is for its owner's eyes alone."""
        table = {
            identity.uri: {action: sorted(topics) for action, topics in given._asdict().items()}
            for identity, given in self.table.items()
        }
        write_private(path, json.dumps(table, indent=1))

    @classmethod
    def read(cls, path: Path) -> Access:
        """Read a table back."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                {
                    Identity.parse(uri): Rights(
                        frozenset(given["publish"]), frozenset(given["subscribe"])
                    )
                    for uri, given in table.items()
                }
            )
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is no table of who may do what: {error}") from error


class Guard(NamedTuple):
    """What a broker tells participants apart with, and proves to them who it is."""

    identity: Identity
    credentials: Credentials
    access: Access


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
