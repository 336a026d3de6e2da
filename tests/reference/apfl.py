"""APFL (Deng et al. 2020, equations 6, 7, 8 and 10) and the variants of other implementations.

w is the server model, v[i] and alpha[i] belong to client i. Models are dicts of arrays, alpha[i] is a number in [0, 1].
"""

import numpy as np

from tests.reference.fedavg import client_weight
from tests.reference.models import cross_entropy, cross_entropy_grad
from tests.reference.trees import axpy, copy, dot, lerp, one_of, scale, sub, weighted_mean


def personal(w, v_i, alpha_i):
    """vbar_i = alpha_i v_i + (1 - alpha_i) w, the model that client i deploys (mix="params")."""
    return lerp(alpha_i, v_i, w)


def personal_logits(model, w, v_i, alpha_i, x, mix="params"):
    """Outputs [n, C] of client i's deployed model: of the mixed params, or the mixed outputs of v_i and w."""
    one_of("mix", mix, ("params", "logits"))
    if mix == "params":
        return model.logits(personal(w, v_i, alpha_i), x)
    return alpha_i * model.logits(v_i, x) + (1 - alpha_i) * model.logits(w, x)


def mixture_loss(model, w, v_i, alpha_i, x, y, mix="params"):
    """f_i at the mixture. mix="logits": cross-entropy of the mixed outputs + l2/2 ||alpha v + (1 - alpha) w||^2."""
    one_of("mix", mix, ("params", "logits"))
    mixed = personal(w, v_i, alpha_i)
    if mix == "params":
        return model.loss(mixed, x, y)
    return cross_entropy(personal_logits(model, w, v_i, alpha_i, x, mix), y) + model.l2 / 2 * dot(mixed, mixed)


def mixture_gradients(model, w, v_i, alpha_i, x, y, mix="params"):
    """Partial derivatives of `mixture_loss` in v_i, in w and in alpha_i."""
    one_of("mix", mix, ("params", "logits"))
    mixed = personal(w, v_i, alpha_i)
    if mix == "params":
        g = model.grad(mixed, x, y)
        return scale(alpha_i, g), scale(1 - alpha_i, g), dot(sub(v_i, w), g)
    dz = cross_entropy_grad(personal_logits(model, w, v_i, alpha_i, x, mix), y)
    in_v = scale(alpha_i, axpy(model.l2, mixed, model.pull(v_i, x, dz)))
    in_w = scale(1 - alpha_i, axpy(model.l2, mixed, model.pull(w, x, dz)))
    in_alpha = np.sum(dz * (model.logits(v_i, x) - model.logits(w, x))) + model.l2 * dot(mixed, sub(v_i, w))
    return in_v, in_w, float(in_alpha)


def apfl_round(
    model, w, v, alpha, clients, cohort, batches, lr, *, alpha_lr=None, personal_lr=None, adaptive=False, mix="params",
    order="simultaneous", alpha_every="round", alpha_l2=0.0, alpha_gradient="exact", weights="uniform", server_lr=1.0,
):  # fmt: skip
    """One round; returns (w, [v_i], [alpha_i], {i: w_i} for the clients that trained, before averaging).

    One local step, on one minibatch: w_i -= lr grad f_i(w_i); v_i -= personal_lr d(mixture loss)/d v_i; if adaptive,
    alpha_i = clip(alpha_i - alpha_lr (d + 2 alpha_l2 alpha_i), 0, 1), at the first local step of the round or at each.
    alpha_lr, personal_lr: None means lr.
    order: "simultaneous" (the paper) takes all three from the values before the step; "sequential" mixes v_i with the
    w_i just updated. The mixture and v's step always use the alpha from before the step.
    alpha_gradient: "exact" has d = d(mixture loss)/d alpha where the mixture was formed; "fedtorch" has
    d = <v_i+ - w_i+, alpha p + (1 - alpha) q>, p and q the mixture loss's derivatives in v_i and w_i, + after the step.
    Clients without rows, and clients outside the cohort, stay as they are; w stays where no client trained.
    """
    one_of("order", order, ("simultaneous", "sequential"))
    one_of("alpha_every", alpha_every, ("round", "step"))
    one_of("alpha_gradient", alpha_gradient, ("exact", "fedtorch"))
    alpha_lr = lr if alpha_lr is None else alpha_lr
    personal_lr = lr if personal_lr is None else personal_lr

    v, alpha, w_local, shares = [copy(v_i) for v_i in v], [float(a) for a in alpha], {}, []
    for i in cohort:
        x, y = clients[i]
        if len(y) == 0:
            continue
        w_i, v_i, a = copy(w), v[i], alpha[i]
        for step, batch in enumerate(batches[i]):
            xb, yb = x[batch], y[batch]
            w_next = axpy(-lr, model.grad(w_i, xb, yb), w_i)  # equation 6
            w_mix = w_i if order == "simultaneous" else w_next
            p, q, in_alpha = mixture_gradients(model, w_mix, v_i, a, xb, yb, mix)
            v_next = axpy(-personal_lr, p, v_i)  # equation 7
            if adaptive and (alpha_every == "step" or step == 0):
                d = in_alpha if alpha_gradient == "exact" else dot(sub(v_next, w_next), lerp(a, p, q))
                a = min(max(a - alpha_lr * (d + 2 * alpha_l2 * a), 0.0), 1.0)  # equation 10
            w_i, v_i = w_next, v_next
        w_local[i], v[i], alpha[i] = w_i, v_i, a
        shares.append(client_weight(clients, i, weights))
    if w_local:  # equation 8
        w = axpy(server_lr, weighted_mean([sub(w_i, w) for w_i in w_local.values()], shares), w)
    return copy(w), v, alpha, w_local
