"""Distances of distributions and worst-case disagreements by closed forms, quadrature and enumeration, in NumPy."""

import itertools
import math

import numpy as np


def label_distances(label_probs):
    """sum_c |pbar_c - p_ic| of every client, in loops."""
    n, classes = np.shape(label_probs)
    out = []
    for i in range(n):
        total = 0.0
        for c in range(classes):
            mean = sum(label_probs[j][c] for j in range(n)) / n
            total += abs(mean - label_probs[i][c])
        out.append(total)
    return np.array(out)


def two_gaussians(mean_a, mean_b, noise):
    """||N(a, s^2 I) - N(b, s^2 I)||_1 = 2 (2 Phi(|a - b| / (2 s)) - 1) with s = noise, by the error function."""
    gap = math.dist(mean_a, mean_b) / noise
    return 2 * math.erf(gap / (2 * math.sqrt(2)))


def feature_distances(label_probs, means, noise, points=200_001):
    """||Dbar - D_i||_1 of x alone, for mixtures of one-dimensional Gaussians with means [class], by quadrature."""
    x = np.linspace(min(means) - 12 * noise, max(means) + 12 * noise, points)
    classes = np.stack([np.exp(-(((x - m) / noise) ** 2) / 2) / (math.sqrt(2 * math.pi) * noise) for m in means])
    laws = np.asarray(label_probs) @ classes
    return np.array([np.trapezoid(np.abs(laws.mean(0) - law), x) for law in laws])


def disagreement(x, radius, bias=False):
    """lambda_H(S) = 2 R / |S| max over all sign patterns s of |X^T s|."""
    x = np.asarray(x, float)
    if bias:
        x = np.column_stack([x, np.ones(len(x))])
    best = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=len(x)):
        best = max(best, float(np.linalg.norm(np.array(signs) @ x)))
    return 2 * radius * best / len(x)


def bayes_loss(x, y, label_probs, means, noise):
    """The mean over rows of -log of the true posterior of the label: no classifier's expected loss is less."""
    losses = []
    for row, label in zip(np.asarray(x, float), y, strict=True):
        logs = [math.log(p) - np.sum((row - m) ** 2) / (2 * noise**2) for p, m in zip(label_probs, means, strict=True)]
        top = max(logs)
        losses.append(top + math.log(sum(math.exp(v - top) for v in logs)) - logs[label])
    return float(np.mean(losses))
