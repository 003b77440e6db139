"""proto"""
from __future__ import annotations
from math import inf, sqrt, exp
import os
from agent.inference.soft_node import SoftNode
from agent.inference.soft_means import SoftMeans
from agent.inference.spread import later
from agent.policy import Level, Observation, Policy
UCB=float(os.environ.get("UCB","0"))
JEN=os.environ.get("JEN","1")=="1"
class Soft(Policy):
    needs = Level.COUNT
    def reset(self):
        v = self.view
        ways = [u+d for a,b in zip(v.up,v.down) for x,y in zip(a,b) for u,d in zip(x,y)]
        self.means = SoftMeans(len(v.nodes), len(v.categories), sum(ways)/len(ways))
        self.nodes = [SoftNode(n, v.count, self.means) for n in range(len(v.nodes))]
        self.before = -inf
    def place(self, seen):
        now=seen.time
        for b, c in zip(self.nodes, seen.counts): b.observe(self.before, now, c)
        self.before=now
        c=seen.category
        up = self.view.up[seen.cluster][c]; down=self.view.down[seen.cluster][c]
        best, shortest = 0, inf
        std = self.means.std() if UCB else None
        for n,b in enumerate(self.nodes):
            a = now+up[n]
            f, v = b.free_at(a, seen.job)
            f = (later(a, f, v)[0] if JEN else max(a,f)) if f > -inf else a
            m = self.means.mean[n][c]
            if UCB: m *= exp(-UCB*std[n][c])
            back = f + m + down[n]
            if back < shortest: best, shortest = n, back
        self.nodes[best].place(now+up[best], seen.job, c)
        return best
