"""APFL's Theorem 1 written out from the paper, and the mixed model of equation 1 by plain loops: no jax."""

import math

import numpy as np


def global_side(risk, b, distance, c, d, delta, m):
    """Lhat_Dbar(hbar) + B ||Dbar - D_i||_1 + C sqrt((d + log 1/delta) / m)."""
    return risk + b * distance + c * math.sqrt((d + math.log(1 / delta)) / m)


def local_side(risk, c, d, delta, m_i, g, disagreement):
    """L_Di(h_i*) + 2 C sqrt((d + log 1/delta) / m_i) + G lambda_H(S_i)."""
    return risk + 2 * c * math.sqrt((d + math.log(1 / delta)) / m_i) + g * disagreement


def bound(alpha, shared, own):
    """The right side of Theorem 1 from its two sides."""
    return 2 * (1 - alpha) ** 2 * shared + 2 * alpha**2 * own


def best_alpha(shared, own):
    """Equation 3."""
    return shared / (shared + own)


def project(h, radius):
    """The point of the ball nearest h."""
    size = np.linalg.norm(h)
    return h if size <= radius else h * (radius / size)


def fit_in_ball(x, y, radius, steps=5_000):
    """argmin over ||h|| <= radius of mean (x h - y)^2, by projected gradient steps."""
    step = 1 / np.linalg.eigvalsh(x.T @ x / len(x))[-1]
    h = np.zeros(x.shape[1])
    for _ in range(steps):
        h = project(h - step * x.T @ (x @ h - y) / len(x), radius)
    return h


def mixed_model(alpha, x, y, shared, radius):
    """h_alpha: alpha h_loc + (1 - alpha) hbar, h_loc = argmin Lhat_Di(alpha h + (1 - alpha) hbar) in the ball."""
    if alpha == 0:
        return shared
    return alpha * fit_in_ball(alpha * x, y - (1 - alpha) * x @ shared, radius) + (1 - alpha) * shared
