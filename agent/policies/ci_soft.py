"""proto"""
from __future__ import annotations
from math import inf, sqrt, exp
import os
import numpy as np
from math import log1p
from agent.inference.spread import truncated
CENS=float(os.environ.get('CENS','0.5'))
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
        means = self.means.mean
        if CENS:
            x = None
            M = self.means; cv2 = M.cv2
            for b in self.nodes:
                if b.known:
                    j = b.jobs[0]
                    m = means[b.node][j.category]
                    s, sv = b.start()
                    e = (now - s)/m
                    if e > CENS:
                        i = b.node*M.C + j.category
                        p = M.P[i]
                        pii = p[i]
                        if pii > 0.02*cv2 and pii*e > .02*cv2:
                            E, V = truncated(cv2, e, None)
                            w = max(1 - V/cv2, 0.0)
                            gain = (E-1)/(w*pii+cv2)
                            own = gain*pii
                            if own > 1e-9: gain *= log1p(own)/own
                            x = (M.x if x is None else x) + gain*p
            if x is not None: means = np.exp(x).reshape(M.N, M.C).tolist()
        up = self.view.up[seen.cluster][c]; down=self.view.down[seen.cluster][c]
        best, shortest = 0, inf
        std = self.means.std() if UCB else None
        for n,b in enumerate(self.nodes):
            a = now+up[n]
            f, v = b.free_at(a, seen.job, means[n])
            f = (later(a, f, v)[0] if JEN else max(a,f)) if f > -inf else a
            m = means[n][c]
            if UCB: m *= exp(-UCB*std[n][c])
            back = f + m + down[n]
            if back < shortest: best, shortest = n, back
        self.nodes[best].place(now+up[best], seen.job, c)
        return best
