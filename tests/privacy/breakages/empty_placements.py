"""The agent sends each provider an empty message whenever the queues of the others grow."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/agent/episode.py",
        """
        _before_empty_placements = Episode.decide

        async def _decide(self, workloads):
            batches = await _before_empty_placements(self, workloads)
            if self.queued:
                for node in range(len(self._view.nodes)):
                    if node not in batches:
                        batches[node] = self._message(node, [])
            return batches

        Episode.decide = _decide
        """,
    )
