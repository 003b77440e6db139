"""proto: gamma distribution of mean 1 by Wilson-Hilferty"""
from __future__ import annotations
from math import erfc, sqrt, exp, pi

R2 = sqrt(0.5)

def above(x, k):
    """P(gamma(k) > x)"""
    return 0.5*erfc(R2*3*sqrt(k)*((x/k)**(1/3) - 1 + 1/(9*k)))

def truncated(variance, low, high):
    """mean and variance of a gamma of mean 1 given low < X <= high (high None = inf)"""
    k = 1/variance
    if low > 0:
        x = k*low
        f0, g0, h0 = above(x, k), above(x, k+1), above(x, k+2)
    else:
        low = 0.0
        f0 = g0 = h0 = 1.0
    if high is not None:
        x = k*high
        f0 -= above(x, k); g0 -= above(x, k+1); h0 -= above(x, k+2)
    if f0 < 1e-10:
        if high is None:
            return low + variance, variance*variance
        if low > 1: # tail: near the low end, exponential-like
            w = min(variance, 0.5*(high-low))
            return low + w, w*w/3
        w = min(variance, .5*(high-low))
        return high - w, w*w/3
    m = g0/f0
    s = (1+variance)*h0/f0
    if m < low: m = low
    if high is not None and m > high: m = high
    v = s - m*m
    vmax = variance
    if high is not None:
        vmax = min(vmax, (high-low)**2/12*1.2)
    if v < 0: v = 0.0
    elif v > vmax and variance <= 1: v = vmax
    return m, v

def later(fixed, mean, var):
    """Clark: mean, var of max(fixed, N(mean,var))"""
    d = mean - fixed
    if d*d > 12*var:
        return (mean, var) if d > 0 else (fixed, 0.0)
    sd = sqrt(var)
    z = d/sd
    P = 0.5*erfc(-z*R2)
    p = exp(-.5*z*z)/sqrt(2*pi)
    e = d*P + sd*p
    e2 = (d*d+var)*P + d*sd*p
    return fixed + e, max(e2 - e*e, 0.0)
