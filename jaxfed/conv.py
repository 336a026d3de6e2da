"""Convolution and pooling that are fast on a CPU, also under vmap over clients, and the CNN built from them.

XLA's convolution gradient is an order of magnitude slower on a CPU than matrix products on patches, and vmap over
clients (a grouped convolution) slows it further. So on a CPU a convolution here is one matrix product with patches.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxfed.layers import Dense


def conv2d(x: jax.Array, kernel: jax.Array, padding: str = "SAME", method: str = "auto") -> jax.Array:
    """Cross-correlate images with a kernel, stride 1: y[b, i, j, o] = sum_{u,v,c} x[b, i+u, j+v, c] kernel[o, u, v, c].

    x [b, H, W, in], kernel [out, kh, kw, in]. "SAME" pads x with zeros, needs odd kh and kw and returns
    [b, H, W, out]; "VALID" returns [b, H-kh+1, W-kw+1, out]. The dtype is the common one of x and kernel.

    `method` is resolved when the function is traced: "patches" (one matrix product, memory kh*kw times that of x),
    "native" (`jax.lax.conv_general_dilated`), or "auto", which is "patches" exactly if `jax.default_backend()` is
    "cpu". Works under jit, vmap (of x, kernel or both), grad, scan and lax.map.

    Raises ValueError on an unknown padding or method and on shapes that do not fit.
    """
    _check(x, kernel, padding, method)
    dtype = jnp.result_type(x, kernel)
    x, kernel = x.astype(dtype), kernel.astype(dtype)
    if method == "auto":
        method = "patches" if jax.default_backend() == "cpu" else "native"
    if method == "native":
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "OHWI", "NHWC"))
    if padding == "SAME":
        rows, cols = kernel.shape[1] // 2, kernel.shape[2] // 2
        x = jnp.pad(x, ((0, 0), (rows, rows), (cols, cols), (0, 0)))
    return _conv_patches(x, kernel)


def max_pool2(x: jax.Array) -> jax.Array:
    """Maximum over 2x2 windows with stride 2: x [b, H, W, c] -> [b, H/2, W/2, c].

    Where several entries of a window attain the maximum, the gradient is shared equally among them.

    Raises ValueError if x is not 4-dimensional or H or W is odd (nothing is cropped silently).
    """
    if x.ndim != 4 or x.shape[1] % 2 or x.shape[2] % 2:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, H, W, c] with even H and W")
    b, height, width, c = x.shape
    return x.reshape(b, height // 2, 2, width // 2, 2, c).max((2, 4))


class Conv(nn.Module):
    """`conv2d` with a size x size kernel, "SAME" padding, plus a bias: x [b, H, W, in] -> [b, H, W, features].

    The kernel is stored [out, size, size, in]. Initial values: LeCun normal with fan-in size * size * in, bias zero.
    """

    features: int
    size: int
    method: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the layer to x [b, H, W, in]; size must be odd."""
        init = nn.initializers.lecun_normal(in_axis=(1, 2, 3), out_axis=0)
        kernel = self.param("kernel", init, (self.features, self.size, self.size, x.shape[-1]))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return conv2d(x, kernel, method=self.method) + bias


class Cnn(nn.Module):
    """The CNN of McMahan et al. 2017 (arXiv:1602.05629, section 3): x [b, H, W, in] -> logits [b, num_classes].

    For each entry of `channels` a 5x5 convolution, relu and 2x2 max-pool; then a relu layer of `dense` units and a
    linear output. H and W must be divisible by 2 ** len(channels). With 28x28x1 and 10 classes: 1,663,370 parameters.
    """

    num_classes: int
    channels: tuple[int, ...] = (32, 64)
    dense: int = 512
    method: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of the images x."""
        for features in self.channels:
            # relu after the pool: the same function, since relu is monotone, at a quarter of the work
            x = nn.relu(max_pool2(Conv(features, 5, self.method)(x)))
        x = nn.relu(Dense(self.dense)(x.reshape(x.shape[0], -1)))
        return Dense(self.num_classes)(x)


def _check(x: jax.Array, kernel: jax.Array, padding: str, method: str) -> None:
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding: got {padding!r}, wanted 'SAME' or 'VALID'")
    if method not in ("auto", "patches", "native"):
        raise ValueError(f"method: got {method!r}, wanted 'auto', 'patches' or 'native'")
    if x.ndim != 4:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, H, W, in]")
    if kernel.ndim != 4 or kernel.shape[3] != x.shape[3]:
        raise ValueError(f"kernel: got shape {kernel.shape}, wanted [out, kh, kw, in = {x.shape[3]}]")
    _, kh, kw, _ = kernel.shape
    if padding == "SAME" and (kh % 2 == 0 or kw % 2 == 0):
        raise ValueError(f"kernel: got size {kh} x {kw}, wanted odd sizes for padding 'SAME'")
    if padding == "VALID" and (kh > x.shape[1] or kw > x.shape[2]):
        raise ValueError(f"kernel: got size {kh} x {kw}, wanted at most that of x, {x.shape[1]} x {x.shape[2]}")


def _patches(x: jax.Array, kh: int, kw: int) -> jax.Array:
    """im2col: [b, H, W, c] -> [b, H-kh+1, W-kw+1, kh*kw*c] by static slices, laid out as kernel[o].ravel()."""
    rows, cols = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    return jnp.concatenate([x[:, u : u + rows, v : v + cols] for u in range(kh) for v in range(kw)], axis=-1)


def _conv_patches(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The "VALID" convolution as one matrix product [b*rows*cols, kh*kw*in] @ [kh*kw*in, out].

    Plain autodiff gives the fast gradients: dkernel = dy^T @ patches, dx = dy @ kernel scattered back over the slices.
    """
    out, kh, kw, _ = kernel.shape
    patches = _patches(x, kh, kw)
    y = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(out, -1).T
    return y.reshape(*patches.shape[:3], out)
