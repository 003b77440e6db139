"""The topics of the workload plane.

Every topic starts with `fogveil/v1/RUN/`, where RUN is the random id of a run, so that several
runs can share one broker. These are all of them:

| topic under fogveil/v1/RUN   | published by           | subscribed by          | message    |
|------------------------------|------------------------|------------------------|------------|
| workload/SOURCES             | the sources process    | the agent              | Workloads  |
| placement/PROVIDER           | the agent              | that provider          | Placements |
| aggregate/PROVIDER           | that (fog) provider    | the cloud              | Aggregates |
| feedback/SOURCES/PROVIDER    | that provider or cloud | that sources process   | Feedback   |
| keys/PROVIDER                | that provider or cloud | providers and cloud    | public key |

The messages are those of `fogveil.v1.workload`. Keys, which disclosure level `total` needs, are
retained for subscribers that come later. SOURCES and PROVIDER are the participants' names,
percent-encoded because a topic cannot hold every character (`/`, `+`, `#`, control characters).
The brokers enforce this table by `fogveil.broker.acl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from fogveil.protocol.identity import AGENT

PREFIX = "fogveil/v1"


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
        """Return the topic of a sources process's workloads."""
        return self._topic("workload", quote(sources, safe=""))

    def placement(self, provider: str) -> str:
        """Return the topic of the jobs placed at a provider."""
        return self._topic("placement", quote(provider, safe=""))

    def aggregate(self, provider: str) -> str:
        """Return the topic of what a fog provider sends on to the cloud."""
        return self._topic("aggregate", quote(provider, safe=""))

    def feedback(self, sources: str, provider: str) -> str:
        """Return the topic of a provider's (or the cloud's) results for a sources process."""
        return self._topic("feedback", quote(sources, safe=""), quote(provider, safe=""))

    def keys(self, provider: str) -> str:
        """Return the topic of a provider's (or the cloud's) public key."""
        return self._topic("keys", quote(provider, safe=""))

    @property
    def all_workloads(self) -> str:
        """The filter for the workloads of all sources."""
        return self._topic("workload", "+")

    @property
    def all_aggregates(self) -> str:
        """The filter for the aggregates of all fog providers."""
        return self._topic("aggregate", "+")

    def all_feedback(self, sources: str) -> str:
        """Return the filter for the feedback of all providers to one sources process."""
        return self._topic("feedback", quote(sources, safe=""), "+")

    @property
    def all_keys(self) -> str:
        """The filter for the public keys of all providers."""
        return self._topic("keys", "+")

    def sender(self, topic: str) -> str:
        """Return the name of a topic's only publisher, or "" where it is no topic of this run."""
        start = self._topic("")
        if topic.startswith(start):
            match topic.removeprefix(start).split("/"):
                case ["placement", _]:
                    return AGENT  # there is one, so the topic does not name it
                case ["workload" | "aggregate" | "keys", name] | ["feedback", _, name]:
                    try:
                        return unquote(name, errors="strict")
                    except UnicodeDecodeError:
                        return ""
        return ""

    def _topic(self, *levels: str) -> str:
        return "/".join((PREFIX, self.run, *levels))
