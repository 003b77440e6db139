"""The topics of the workload plane.

Every topic starts with `fogveil/v1/RUN/`, where RUN is the random id of one run, so that several
runs can share one broker. This is all that crosses it:

| topic under fogveil/v1/RUN   | published by           | subscribed by          | message    |
|------------------------------|------------------------|------------------------|------------|
| workload/SOURCES             | the sources process    | the agent              | Workloads  |
| placement/PROVIDER           | the agent              | that provider          | Placements |
| aggregate/PROVIDER           | that (fog) provider    | the cloud              | Aggregates |
| feedback/SOURCES/PROVIDER    | that provider or cloud | that sources process   | Feedback   |
| keys/PROVIDER                | that provider or cloud | providers and cloud    | public key |

The messages are those of `fogveil.v1.workload`; keys, which level `total` needs, are retained, so
that who comes later gets them as well. SOURCES and PROVIDER are the participants' names,
percent-encoded, so that a name can hold what a topic cannot (`/`, `+`, `#`, control characters).
`broker.access` holds the brokers to this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

PREFIX = "fogveil/v1"
AGENT = "agent"
"""The sender of placements: there is one agent, so their topic does not name it."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics and filters of one run.

    >>> Topics("7f").feedback("sources", "fog/1")
    'fogveil/v1/7f/feedback/sources/fog%2F1'
    >>> Topics("7f").sender("fogveil/v1/7f/feedback/sources/fog%2F1")
    'fog/1'
    """

    run: str

    def workload(self, sources: str) -> str:
        """Name where a sources process publishes its workloads."""
        return self._topic("workload", quote(sources, safe=""))

    def placement(self, provider: str) -> str:
        """Name where a provider is told which jobs are its own."""
        return self._topic("placement", quote(provider, safe=""))

    def aggregate(self, provider: str) -> str:
        """Name where a fog provider publishes what goes on to the cloud."""
        return self._topic("aggregate", quote(provider, safe=""))

    def feedback(self, sources: str, provider: str) -> str:
        """Name where a provider or the cloud tells a sources process of finished jobs."""
        return self._topic("feedback", quote(sources, safe=""), quote(provider, safe=""))

    def keys(self, provider: str) -> str:
        """Name where a provider or the cloud publishes its public key, retained."""
        return self._topic("keys", quote(provider, safe=""))

    @property
    def all_workloads(self) -> str:
        """Filter for the workloads of all sources."""
        return self._topic("workload", "+")

    @property
    def all_aggregates(self) -> str:
        """Filter for the aggregates of all fog providers."""
        return self._topic("aggregate", "+")

    def all_feedback(self, sources: str) -> str:
        """Filter for the feedback of all providers to one sources process."""
        return self._topic("feedback", quote(sources, safe=""), "+")

    @property
    def all_keys(self) -> str:
        """Filter for the public keys of all providers."""
        return self._topic("keys", "+")

    def sender(self, topic: str) -> str:
        """Return the publisher that a topic of this run names.

        Raises ValueError where the topic belongs to another run or to nobody.
        """
        start = self._topic("")
        if topic.startswith(start):
            match topic.removeprefix(start).split("/"):
                case ["placement", _]:
                    return AGENT
                case ["workload" | "aggregate" | "keys", name] | ["feedback", _, name]:
                    return unquote(name, errors="strict")
        raise ValueError(f"{topic!r} is no topic of run {self.run}")

    def publisher(self, topic: str) -> str:
        """Return the publisher that a topic names, or "": below a filter anybody may publish."""
        try:
            return self.sender(topic)
        except ValueError:
            return ""

    def _topic(self, *levels: str) -> str:
        return "/".join((PREFIX, self.run, *levels))
