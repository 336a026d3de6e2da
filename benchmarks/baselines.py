"""What jaxfed is measured against: PyTorch client by client, and the obvious JAX form (vmap over clients, jax.grad)."""

import jax
import jax.numpy as jnp
import numpy as np

SHAPES = {
    "logistic": [(10, 784), (10,)],
    "mlp": [(200, 784), (200,), (200, 200), (200,), (10, 200), (10,)],
    "cnn": [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)],
}


def initial(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=s) / np.sqrt(max(np.prod(s[1:]), 1))).astype(np.float32) * (len(s) > 1)
            for s in SHAPES[name]]  # fmt: skip


def torch_round(name: str, x: np.ndarray, y: np.ndarray, rows: list[np.ndarray], apfl: bool, steps: int, batch: int):
    """Return a function that runs one round over the clients one after another, with autograd, as most code does."""
    import torch
    import torch.nn.functional as F

    x, y = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    rows = [torch.from_numpy(r.astype(np.int64)) for r in rows]

    def outputs(p, x):
        if name == "cnn":
            x = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], padding=2)), 2)
            x = F.max_pool2d(F.relu(F.conv2d(x, p[2], p[3], padding=2)), 2)
            p = p[4:]
        x = x.flatten(1)
        for w, b in zip(p[0:-2:2], p[1:-2:2], strict=True):
            x = F.relu(F.linear(x, w, b))
        return F.linear(x, p[-2], p[-1])

    def gradient(p, x, y):
        p = [a.detach().requires_grad_() for a in p]
        return torch.autograd.grad(F.cross_entropy(outputs(p, x), y), p)

    server = [torch.from_numpy(a) for a in initial(name)]
    personal = [[a.clone() for a in server] for _ in rows]
    alpha = [0.5] * len(rows)

    def one_round():
        total = [torch.zeros_like(a) for a in server]
        for i, mine in enumerate(rows):
            w, v = [a.clone() for a in server], personal[i]
            for s in range(steps):
                at = mine[torch.randint(len(mine), (batch,))]
                xb, yb = x[at], y[at]
                g_w = gradient(w, xb, yb)
                if apfl:
                    a = alpha[i]
                    g_v = gradient([a * p + (1 - a) * q for p, q in zip(v, w, strict=True)], xb, yb)
                    if s == 0:
                        slope = sum(float(((p - q) * g).sum()) for p, q, g in zip(v, w, g_v, strict=True))
                        alpha[i] = min(max(a - 0.1 * slope, 0.0), 1.0)
                    for p, g in zip(v, g_v, strict=True):
                        p.sub_(g, alpha=0.1 * a)
                for p, g in zip(w, g_w, strict=True):
                    p.sub_(g, alpha=0.1)
            for t, p in zip(total, w, strict=True):
                t.add_(p, alpha=1 / len(rows))
        for a, t in zip(server, total, strict=True):
            a.copy_(t)

    return one_round


def obvious_round(name: str, x: np.ndarray, y: np.ndarray, rows: np.ndarray, apfl: bool, steps: int, batch: int):
    """Return a function that runs one round as one would first write it in JAX: vmap over clients, jax.grad twice.

    Dense weights are stored [in, out]; convolutions are the native ones.
    """
    x, y, rows = jnp.asarray(x), jnp.asarray(y), jnp.asarray(rows)
    if name == "cnn":
        x = jnp.moveaxis(x, 1, -1)

    def outputs(p, x):
        if name == "cnn":
            for w, b in ((p[0], p[1]), (p[2], p[3])):
                x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b
                x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            p = p[4:]
        x = x.reshape(x.shape[0], -1)
        for w, b in zip(p[0:-2:2], p[1:-2:2], strict=True):
            x = jax.nn.relu(x @ w + b)
        return x @ p[-2] + p[-1]

    def loss(p, x, y):
        z = outputs(p, x)
        return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0])

    start = [jnp.asarray(a if a.ndim == 1 else a.T if a.ndim == 2 else a.transpose(2, 3, 1, 0)) for a in initial(name)]

    def client(key, w, v, alpha, mine):
        index = mine[jax.random.randint(key, (steps, batch), 0, len(mine))]

        def step(carry, inputs):
            w, v, alpha = carry
            s, at = inputs
            g_w = jax.grad(loss)(w, x[at], y[at])
            if apfl:
                g_v = jax.grad(loss)([alpha * p + (1 - alpha) * q for p, q in zip(v, w, strict=True)], x[at], y[at])
                slope = sum(jnp.vdot(p - q, g) for p, q, g in zip(v, w, g_v, strict=True))
                v = [p - 0.1 * alpha * g for p, g in zip(v, g_v, strict=True)]
                alpha = jnp.where(s == 0, jnp.clip(alpha - 0.1 * slope, 0, 1), alpha)
            return ([p - 0.1 * g for p, g in zip(w, g_w, strict=True)], v, alpha), None

        return jax.lax.scan(step, (w, v, alpha), (jnp.arange(steps), index))[0]

    def one_round(key, w, v, alpha):
        keys = jax.random.split(key, rows.shape[0])
        w, v, alpha = jax.vmap(client, (0, None, 0, 0, 0))(keys, w, v, alpha, rows)
        return [p.mean(0) for p in w], v, alpha

    compiled = jax.jit(one_round, donate_argnums=(1, 2, 3))
    repeated = [jnp.repeat(p[None], rows.shape[0], 0) for p in start] if apfl else []
    state = [start, repeated, jnp.full(rows.shape[0], 0.5)]
    rounds = [0]

    def run_round():
        rounds[0] += 1
        state[:] = jax.block_until_ready(compiled(jax.random.key(rounds[0]), *state))

    return run_round
