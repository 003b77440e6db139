from __future__ import annotations
from bisect import insort
from math import inf
from agent.inference.own_line import OwnJob
from agent.inference.spread import truncated, later
import os
from agent.inference.spread import above
EXACT=os.environ.get('EXACT','1')=='1'
from fogveil.disclosure import CountKind

class SoftNode:
    def __init__(self, node, kind, means):
        self.node=node; self.waiting = kind is CountKind.WAITING
        self.means=means
        self.jobs=[]   # from the one in service on
        self.arrived=0
        self.started=0   # waiting: number started not closed (0/1)
        self.last_f, self.last_v = -inf, 0.0
        self.now = -inf
        self.known = False # jobs[0] known to be in service now

    def place(self, arrival, job, category):
        insort(self.jobs, OwnJob(arrival, job, category))

    def observe(self, before, now, count):
        jobs=self.jobs
        n=self.arrived
        while n < len(jobs) and jobs[n].arrival <= now: n+=1
        self.now = now
        if self.waiting:
            # jobs[0..] : started is n - count
            started = max(min(n - count, n), self.started)
            close = started - 1 if started > 0 else 0
            for i in range(close):
                nxt = jobs[1]
                j = jobs[0]
                after = before if nxt.arrival <= before else j.unfinished_at
                self.close(after if i == 0 or nxt.arrival<=before else j.arrival, now, sum(self.means.mean[self.node][q.category] for q in jobs[1:close-i]))
                n -= 1
            self.arrived = n
            self.started = started - close
            self.known = False
            if self.started and n > 1:
                self.known = True
                jobs[0].unfinished_at = now
        else:
            close = max(n - count, 0)
            for i in range(close):
                self.close(before if i == 0 else -inf, now, sum(self.means.mean[self.node][q.category] for q in jobs[1:close-i]))
                n -= 1
            self.arrived = n
            self.known = n > 0
            if n: jobs[0].unfinished_at = now

    def start(self):
        j = self.jobs[0]
        return later(j.arrival, self.last_f, self.last_v) if self.last_f > -inf else (j.arrival, 0.0)

    def close(self, after, by, rest):
        j = self.jobs.pop(0)
        s, sv = later(j.arrival, self.last_f, self.last_v) if self.last_f > -inf else (j.arrival, 0.0)
        means = self.means
        m = means.mean[self.node][j.category]
        cv2 = means.cv2
        own = cv2*m*m
        total = own + sv
        if by < s + 1e-9: by = s + 1e-9
        if rest: by = s + (by - s)*m/(m+rest)
        e, v = truncated(total/(m*m), (after - s)/m, (by - s)/m)
        share = own/total
        self.last_f = s + e*m
        self.last_v = v*m*m
        means.learn(self.node, j.category, m + share*(e-1)*m, share*share*v*m*m + (1-share)*own)

    def free_at(self, arrival, job, est=None):
        """mean, var"""
        jobs=self.jobs
        f, v = self.last_f, self.last_v
        means = self.means.mean[self.node] if est is None else est
        cv2 = self.means.cv2
        now = self.now
        for i, j in enumerate(jobs):
            if j.arrival > arrival or (j.arrival == arrival and j.job > job): break
            if f > -inf: f, v = later(j.arrival, f, v)
            else: f, v = j.arrival, 0.0
            m = means[j.category]
            if i == 0 and j.arrival <= now:
                var = v/(m*m) + cv2
                if self.known or not EXACT:
                    e, x = truncated(var, (j.unfinished_at - f)/m, None)
                    f, v = f + e*m, x*m*m
                    if not self.known:
                        f, v = later(now, f, v)
                else:
                    k = 1/var
                    el = max((now - f)/m, 0.0)
                    q = above(k*el, k)/max(above(k*max((j.unfinished_at - f)/m,0.0), k),1e-12)
                    if q > 1e-6:
                        e, x = truncated(var, el, None)
                        left = (e - el)
                        f, v = now + q*left*m if el > 0 else f + e*m, (q*(left*left + x) - q*q*left*left)*m*m
                    else:
                        f, v = now, 0.0
            else:
                f += m
                v += cv2*m*m
        return f, v
