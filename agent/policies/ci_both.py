"""proto"""
from __future__ import annotations
from math import inf, sqrt, exp
import os
import numpy as np
from agent.inference.soft_node import SoftNode
from agent.inference.soft_means import SoftMeans
from agent.inference.node_belief import NodeBelief
from agent.inference.service_bounds import Contradiction, ServiceBounds
from agent.inference.spread import later
from agent.policy import Level, Observation, Policy
UCB=float(os.environ.get("UCB","1"))
class Both(Policy):
    needs = Level.COUNT
    def reset(self):
        v = self.view
        ways = [u+d for a,b in zip(v.up,v.down) for x,y in zip(a,b) for u,d in zip(x,y)]
        self.N, self.C = len(v.nodes), len(v.categories)
        self.means = SoftMeans(len(v.nodes), len(v.categories), sum(ways)/len(ways))
        self.nodes = [SoftNode(n, v.count, self.means) for n in range(len(v.nodes))]
        self.before = -inf
        self.level = 2
        self.bounds = ServiceBounds(self.N, self.C, product=True)
        self.exact = [NodeBelief(n, v.count, self.bounds) for n in range(self.N)]
    def place(self, seen):
        now=seen.time
        for b, c in zip(self.nodes, seen.counts): b.observe(self.before, now, c)
        if self.level:
            try:
                todo = [n for n,b in enumerate(self.exact) if b.observe(self.before, now, seen.counts[n])]
                if todo: self.settle(todo)
            except Contradiction:
                self.level -= 1
                self.bounds = ServiceBounds(self.N, self.C, product=False)
                if self.level:
                    for b in self.exact:
                        b.bounds = self.bounds
                        b.restart()
        self.before=now
        c=seen.category
        up = self.view.up[seen.cluster][c]; down=self.view.down[seen.cluster][c]
        best, shortest = 0, inf
        std = self.means.std() if UCB else None
        for n,b in enumerate(self.nodes):
            a = now+up[n]
            f, v = b.free_at(a, seen.job)
            f = later(a, f, v)[0] if f > -inf else a
            m = self.means.mean[n][c]
            if UCB: m *= exp(-UCB*std[n][c])
            if m < self.bounds.low[n][c]: m = self.bounds.low[n][c]
            back = f + m + down[n]
            if back < shortest: best, shortest = n, back
        self.nodes[best].place(now+up[best], seen.job, c)
        if self.level: self.exact[best].place(now+up[best], seen.job, c)
        return best
    def settle(self, todo):
        todo = set(todo)
        rounds = 0
        changed_any = False
        while todo:
            n = min(todo)
            todo.discard(n)
            rounds += 1
            if rounds > 60: break
            slo, shi = self.exact[n].propagate()
            for c in range(self.C):
                ch = self.bounds.tighten(n, c, slo[c], shi[c])
                if ch:
                    changed_any = True
                    todo.update(ch)
        if changed_any and os.environ.get("CLIP","1")=="1":
            lo = np.array(self.bounds.low).ravel(); hi=np.array(self.bounds.high).ravel()
            m = self.means
            with np.errstate(divide="ignore"):
                x = np.clip(m.x, np.log(lo), np.log(hi))
            if (x != m.x).any():
                m.x = x
                m.mean = np.exp(x).reshape(self.N,self.C).tolist()
