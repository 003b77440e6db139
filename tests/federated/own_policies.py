"""Policies as a user writes them, each with a nature of its own."""

from __future__ import annotations

from fogveil.agent.policy import Level, Policy


class Cycles(Policy):
    def place(self, seen):
        return seen.job % len(self.view.nodes)


class SeesCloud(Policy):
    """Every decision depends on the Cloud's count."""

    needs = Level.COUNT
    watches_cloud = True

    def place(self, seen):
        return (sum(seen.counts) + 5 * seen.cloud_count + seen.job) % len(self.view.nodes)


class SeesTotal(Policy):
    needs = Level.TOTAL

    def place(self, seen):
        return (seen.total + seen.job) % len(self.view.nodes)


class Ahead(Policy):
    """Decides blindly; is told later, of everything and in order."""

    needs = Level.COUNT
    watches_cloud = True
    decides_ahead = True

    def reset(self):
        self.decided = []

    def place(self, seen):
        assert seen.counts is None
        self.decided.append(seen.job)
        return (7 * seen.job) % len(self.view.nodes)

    def learn(self, seen, node):
        assert seen.cloud_count is not None
        assert seen.job == self.decided.pop(0)
        assert node == (7 * seen.job) % len(self.view.nodes)


class AheadOfTotal(Ahead):
    needs = Level.TOTAL

    def learn(self, seen, node):
        assert seen.job == self.decided.pop(0)
        assert seen.total >= 0


class AheadOfNothing(Policy):
    """Is told nothing, and that at once: so it may depend on it."""

    decides_ahead = True

    def reset(self):
        self.learned = 0

    def place(self, seen):
        return self.learned % len(self.view.nodes)

    def learn(self, seen, node):
        self.learned += 1 + seen.category


class AheadOfAll(Policy):
    """What level full adds is told at once: so it may depend on it."""

    needs = Level.FULL
    decides_ahead = True

    def reset(self):
        self.backlog = [0.0] * len(self.view.nodes)

    def place(self, seen):
        assert seen.load is None
        return self.backlog.index(min(self.backlog))

    def learn(self, seen, node):
        self.backlog = [a + b for a, b in zip(seen.load.backlog, seen.load.service, strict=True)]


class Prints(Cycles):
    """Prints what a launcher might take for a report."""

    def place(self, seen):
        print(3)  # noqa: T201
        print('{"agent": 5, "listening": 7, "joined": "fog-1"}')  # noqa: T201
        print("half a line", end="")  # noqa: T201
        return super().place(seen)


class AheadOfChanges(Ahead):
    """Decides blindly among those that are there, and by what was told of earlier decisions."""

    def reset(self):
        super().reset()
        self.told = 0

    def place(self, seen):
        self.decided.append(seen.job)
        nodes = seen.available or range(len(self.view.nodes))
        latency = self.view.up[seen.cluster][seen.category]
        return nodes[int(seen.job + seen.attempt + 100 * max(latency)) % len(nodes)]

    def learn(self, seen, node):
        assert seen.job == self.decided.pop(0)
        assert seen.available is None or node in seen.available
        assert all(count >= 0 for count in map(seen.counts.__getitem__, seen.available or ()))


class OnFirst(Policy):
    """Does not ask who is there."""

    needs = Level.COUNT

    def place(self, seen):
        return 0
