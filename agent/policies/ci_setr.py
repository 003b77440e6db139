"""proto"""

from __future__ import annotations
from math import inf, sqrt
import os
from agent.inference.node_belief import NodeBelief
from agent.inference.service_bounds import Contradiction, ServiceBounds
from agent.policy import Level, Observation, Policy

MODE = os.environ.get("EST", "mid")
TRY = os.environ.get("TRY", "once")


class CountInferredResponse(Policy):
    needs = Level.COUNT

    def reset(self):
        v = self.view
        self.N, self.C = len(v.nodes), len(v.categories)
        self.bounds = ServiceBounds(self.N, self.C, product=True)
        self.nodes = [NodeBelief(n, v.count, self.bounds) for n in range(self.N)]
        self.before = -inf
        self.est = [[0.0] * self.C for _ in range(self.N)]
        self.refresh()

    def refresh(self):
        lo, hi = self.bounds.low, self.bounds.high
        mid = [[(0.5 * (l + h) if h < inf else inf) for l, h in zip(a, b)] for a, b in zip(lo, hi)]
        best = [min(m[c] for m in mid) for c in range(self.C)]
        for n in range(self.N):
            for c in range(self.C):
                l, h = lo[n][c], hi[n][c]
                if MODE == "mid":
                    e = mid[n][c]
                    if h > 1.5 * l:
                        e = min(e, max(best[c], l))
                    if e == inf:
                        e = l
                elif MODE == "low":
                    e = l
                elif MODE == "geo":
                    e = sqrt(l * h) if h < inf else l
                    if h > 1.5 * l:
                        e = min(e, max(best[c], l))
                self.est[n][c] = e

    def place(self, seen):
        now = seen.time
        todo = []
        for n, b in enumerate(self.nodes):
            if b.observe(self.before, now, seen.counts[n]):
                todo.append(n)
        self.before = now
        if todo:
            self.settle(todo)
        up = self.view.up[seen.cluster][seen.category]
        down = self.view.down[seen.cluster][seen.category]
        best, shortest = 0, inf
        c = seen.category
        for n, b in enumerate(self.nodes):
            arrival = now + up[n]
            if b.tried == 0 and TRY == "once":
                back = up[n] + down[n] - 1e6 + now
            else:
                free = b.free_at(now, arrival, seen.job, self.est[n])
                back = (arrival if arrival > free else free) + self.est[n][c] + down[n]
            if back < shortest:
                best, shortest = n, back
        self.nodes[best].place(now + up[best], seen.job, c)
        return best

    def settle(self, todo):
        todo = set(todo)
        rounds = 0
        changed_any = False
        while todo:
            n = min(todo)
            todo.discard(n)
            rounds += 1
            if rounds > 60:
                break
            slo, shi = self.nodes[n].propagate()
            for c in range(self.C):
                ch = self.bounds.tighten(n, c, slo[c], shi[c])
                if ch:
                    changed_any = True
                    todo.update(ch)
        if changed_any:
            self.refresh()
