"""proto"""

from __future__ import annotations

from bisect import insort, bisect_left
from math import inf

from agent.inference.own_line import OwnJob
from agent.inference.service_bounds import Contradiction, ServiceBounds
from fogveil.disclosure import CountKind

KEPT = 12
EPS = 1e-9


class NodeBelief:
    def __init__(self, node, kind, bounds):
        self.node = node
        self.waiting = kind is CountKind.WAITING
        self.bounds = bounds
        self.jobs = []
        self.arrived = 0
        self.passed = 0
        self.anchor_lo = self.anchor_hi = -inf
        self.dirty_from = None
        self.tried = 0

    def place(self, arrival, job, category):
        j = OwnJob(arrival, job, category)
        self.tried += 1
        insort(self.jobs, j)

    def observe(self, before, now, count):
        """-> True if something to propagate"""
        jobs = self.jobs
        n = self.arrived
        total = len(jobs)
        while n < total and jobs[n].arrival <= now:
            n += 1
        self.arrived = n
        passed = n - count
        if passed < self.passed or passed > n:
            raise Contradiction
        news = False
        if self.waiting:
            for k in range(self.passed, passed):
                j = jobs[k]
                if before > j.start_lo:
                    j.start_lo = before
                if now < j.start_hi:
                    j.start_hi = now
                news = True
            if passed < n:
                j = jobs[passed]
                if now > j.start_lo:
                    j.start_lo = now
                    if passed:
                        p = jobs[passed - 1]
                        if now > p.finish_lo:
                            p.finish_lo = now
                            if now - p.start_hi > self.bounds.low[self.node][p.category]:
                                news = True
        else:
            for k in range(self.passed, passed):
                j = jobs[k]
                if before > j.finish_lo:
                    j.finish_lo = before
                if now < j.finish_hi:
                    j.finish_hi = now
                news = True
            if passed < n:
                j = jobs[passed]
                if now > j.finish_lo:
                    j.finish_lo = now
                    if passed == 0:
                        hi = max(j.arrival, self.anchor_hi)
                    else:
                        hi = max(j.arrival, jobs[passed - 1].finish_hi)
                    if hi < j.start_hi:
                        j.start_hi = hi
                    if now - j.start_hi > self.bounds.low[self.node][j.category]:
                        news = True
        self.passed = passed
        if news and self.passed > KEPT + 4:
            self.trim()
        return news

    def trim(self):
        drop = self.passed - KEPT
        last = self.jobs[drop - 1]
        self.anchor_lo, self.anchor_hi = last.finish_lo, last.finish_hi
        del self.jobs[:drop]
        self.passed -= drop
        self.arrived -= drop

    def propagate(self):
        """One forward and one backward sweep; returns dict category -> (lo, hi)."""
        low, high = self.bounds.low[self.node], self.bounds.high[self.node]
        jobs = self.jobs
        plo, phi = self.anchor_lo, self.anchor_hi
        end = min(self.passed + 1, self.arrived)
        for k in range(end):
            j = jobs[k]
            c = j.category
            a = j.arrival
            if plo > j.start_lo:
                j.start_lo = plo
            x = phi if phi > a else a
            if x < j.start_hi:
                j.start_hi = x
            if j.start_lo > j.start_hi + EPS * (1 + abs(j.start_hi)):
                raise Contradiction
            x = j.start_lo + low[c]
            if x > j.finish_lo:
                j.finish_lo = x
            x = j.start_hi + high[c]
            if x < j.finish_hi:
                j.finish_hi = x
            if j.finish_lo > j.finish_hi + EPS * (1 + abs(j.finish_hi)):
                raise Contradiction
            plo, phi = j.finish_lo, j.finish_hi
        slo = list(low)
        shi = list(high)
        nlo = None
        nhi = inf
        for k in range(end - 1, -1, -1):
            j = jobs[k]
            c = j.category
            if nhi < j.finish_hi:
                j.finish_hi = nhi
            if nlo is not None and nlo > j.finish_lo:
                j.finish_lo = nlo
            x = j.finish_hi - low[c]
            if x < j.start_hi:
                j.start_hi = x
            x = j.finish_lo - high[c]
            if x > j.start_lo:
                j.start_lo = x
            if j.start_lo > j.start_hi + EPS * (1 + abs(j.start_hi)):
                raise Contradiction
            x = j.finish_lo - j.start_hi
            if x > slo[c]:
                slo[c] = x
            x = j.finish_hi - j.start_lo
            if x < shi[c]:
                shi[c] = x
            nhi = j.start_hi
            nlo = j.start_lo if j.start_lo > j.arrival + EPS * (1 + abs(j.arrival)) else None
        return slo, shi

    def free_at(self, now, arrival, job, est):
        """Expected time the node is free for a job arriving at `arrival`"""
        free = self.anchor_hi
        jobs = self.jobs
        k = 0
        # skip to the last job that surely finished
        k = self.passed - 1 if self.waiting else self.passed
        if k < 0:
            k = 0
        if k:
            p = jobs[k - 1]
            free = 0.5 * (p.finish_lo + p.finish_hi) if p.finish_hi < inf else p.finish_lo
        for i in range(k, len(jobs)):
            j = jobs[i]
            if j.arrival > arrival or (j.arrival == arrival and j.job > job):
                break
            s = j.arrival if j.arrival > free else free
            if s < j.start_lo:
                s = j.start_lo
            elif s > j.start_hi:
                s = j.start_hi
            if s == j.start_lo and j.start_hi < inf and s < j.start_hi and False:
                s = 0.5 * (j.start_lo + j.start_hi)
            free = s + est[j.category]
            if free < j.finish_lo:
                free = j.finish_lo
            elif free > j.finish_hi:
                free = j.finish_hi
        return free

    def restart(self):
        """Forget derived"""
        k = self.passed - (1 if self.waiting else 0)
        if k > 0:
            last = self.jobs[k-1]
            self.anchor_lo, self.anchor_hi = last.arrival, min(last.finish_hi, self.jobs[k].start_hi if k < len(self.jobs) else inf)
            self.anchor_hi = inf
            del self.jobs[:k]
            self.passed -= k; self.arrived -= k
        for j in self.jobs:
            j.start_lo = j.finish_lo = j.arrival
            j.start_hi = j.finish_hi = inf
