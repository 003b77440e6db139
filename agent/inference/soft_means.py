"""proto GP"""
from __future__ import annotations
import numpy as np
from math import log, log1p, exp
import os
TAU=float(os.environ.get("TAU", 0.1)); 
CV0=float(os.environ.get("CV0", 0.4)); NCV=float(os.environ.get("NCV",4))
class SoftMeans:
    def __init__(self, nodes, categories, scale):
        n = np.repeat(np.arange(nodes), categories); c = np.tile(np.arange(categories), nodes)
        sn = n[:,None]==n; sc = c[:,None]==c
        self.P = 4.0 + 0.5*sn + 1.0*sc + TAU**2*(sn&sc)
        self.x = np.full(nodes*categories, log(scale))
        self.C = categories
        self.N = nodes
        self.cv2 = CV0**2
        self.weight = NCV
        self.mean = np.exp(self.x).reshape(nodes, categories).tolist()
        self.sd = np.sqrt(np.diag(self.P)).reshape(nodes, categories).tolist()

    def learn(self, node, category, mean, var):
        """conditional mean and variance of the service time given what was seen"""
        i = node*self.C + category
        m = self.mean[node][category]
        y = mean/m - 1
        rel = var/(m*m)
        cv2 = self.cv2
        w = 1 - rel/cv2
        w = 0.0 if w < 0 else w
        p = self.P[i]
        pii = float(p[i])
        g = w*pii + cv2
        gain = y/g
        own = gain*pii
        if own < -0.9: gain *= .9/-own; own = -.9
        if own > 1e-9 or own < -1e-9: gain *= log1p(own)/own
        k = p*gain
        sample = rel + y*y*cv2/(cv2+pii)
        self.x += k
        self.P -= (w/g)*p[:,None]*p
        self.mean = np.exp(self.x).reshape(self.N, self.C).tolist()
        self.weight += w
        self.cv2 = max(self.cv2 + (sample - cv2)/self.weight, 1e-4)
        if self.cv2 > 2: self.cv2 = 2.0

    def std(self):
        return np.sqrt(np.maximum(np.diag(self.P),0)).reshape(self.N, self.C)
