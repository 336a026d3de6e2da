"""Convolution: against a NumPy loop, against XLA's own convolution, and under every transformation it must survive."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfed.conv import Cnn, Conv, conv2d, max_pool2
from jaxfed.layers import Dense

# x, kernel: neither square nor on a square image; and a single channel
SHAPES = [((2, 6, 9, 3), (2, 3, 5, 3)), ((3, 5, 5, 1), (4, 3, 3, 1))]


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def numpy_conv(x, kernel, padding):
    out, kh, kw, _ = kernel.shape
    if padding == "SAME":
        x = np.pad(x, ((0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)))
    rows, cols = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    y = np.zeros((len(x), rows, cols, out))
    for b, i, j, o in np.ndindex(y.shape):
        y[b, i, j, o] = np.sum(x[b, i : i + kh, j : j + kw] * kernel[o])
    return y


def cotangent_loss(x, kernel, padding, method):
    y = conv2d(x, kernel, padding, method)
    return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape)))  # another weight for every output


@pytest.mark.parametrize("method", ["patches", "native"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_equals_a_numpy_loop(shapes, padding, method):
    x, kernel = arrays(*shapes)
    with jax.enable_x64(True):
        y = jax.jit(conv2d, static_argnums=(2, 3))(jnp.asarray(x), jnp.asarray(kernel), padding, method)
        assert y.dtype == jnp.float64
    np.testing.assert_allclose(y, numpy_conv(x, kernel, padding), atol=1e-12)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_gradients_equal_those_of_lax_conv(shapes, padding):
    with jax.enable_x64(True):
        x, kernel = map(jnp.asarray, arrays(*shapes))
        grad = jax.jit(jax.value_and_grad(cotangent_loss, argnums=(0, 1)), static_argnums=(2, 3))
        got, want = grad(x, kernel, padding, "patches"), grad(x, kernel, padding, "native")
        chex.assert_trees_all_close(got, want, rtol=0, atol=1e-10)


def test_float32_stays_float32_and_is_close():
    x, kernel = (jnp.asarray(a, jnp.float32) for a in arrays(*SHAPES[0]))
    grad = jax.jit(jax.grad(cotangent_loss, argnums=(0, 1)), static_argnums=(2, 3))
    got, want = (grad(x, kernel, "SAME", method) for method in ("patches", "native"))
    assert got[0].dtype == got[1].dtype == jnp.float32
    chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-4)


def test_integer_images_are_promoted_to_the_kernels_dtype():
    x = np.random.default_rng(0).integers(0, 256, size=(2, 6, 6, 1), dtype=np.uint8)
    kernel = np.ones((1, 3, 3, 1), np.float32)
    for method in ("patches", "native"):
        y = conv2d(jnp.asarray(x), jnp.asarray(kernel), method=method)
        assert y.dtype == jnp.float32
        np.testing.assert_array_equal(y, numpy_conv(x.astype(float), kernel, "SAME"))


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_vmap_equals_a_loop(in_axes):
    with jax.enable_x64(True):
        x, kernel = map(jnp.asarray, arrays(*SHAPES[0]))
        x = x if in_axes[0] is None else jnp.stack([x, -2 * x, x**2])
        kernel = kernel if in_axes[1] is None else jnp.stack([kernel, -2 * kernel, kernel**2])
        grad = jax.jit(jax.value_and_grad(lambda x, k: cotangent_loss(x, k, "SAME", "patches"), argnums=(0, 1)))
        got = jax.vmap(grad, in_axes)(x, kernel)
        clients = [
            grad(*(a if axis is None else a[c] for a, axis in zip((x, kernel), in_axes, strict=True))) for c in range(3)
        ]
        chex.assert_trees_all_close(got, jax.tree.map(lambda *g: jnp.stack(g), *clients), rtol=0, atol=1e-10)


def test_gradient_under_scan_and_map():
    with jax.enable_x64(True):
        x, kernel = map(jnp.asarray, arrays((4, 2, 5, 5, 2), (3, 3, 3, 2)))

        def descend(k, method):  # gradients inside a loop
            def step(k, images):
                return k - 0.01 * jax.grad(cotangent_loss, argnums=1)(images, k, "SAME", method), None

            return jax.lax.scan(step, k, x)[0]

        def loop(k, method):  # and the gradient of a loop
            return jax.lax.scan(lambda s, images: (s + jnp.sum(conv2d(images, k, method=method) ** 2), None), 0.0, x)[0]

        def mapped(k, method):
            return jax.lax.map(lambda images: jax.grad(cotangent_loss)(images, k, "VALID", method), x)

        for f in (descend, jax.grad(loop), mapped):
            f = jax.jit(f, static_argnums=1)
            np.testing.assert_allclose(f(kernel, "patches"), f(kernel, "native"), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("backend", "native"), [("cpu", False), ("gpu", True)])
def test_auto_follows_the_backend(monkeypatch, backend, native):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    x, kernel = (jnp.asarray(a, jnp.float32) for a in arrays(*SHAPES[0]))
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x, k: conv2d(x, k).sum(), argnums=(0, 1)))(x, kernel))
    assert ("conv_general_dilated" in jaxpr) == native


def test_max_pool_equals_numpy():
    (x,) = arrays((2, 4, 6, 3))
    want, want_grad = np.zeros((2, 2, 3, 3)), np.zeros_like(x)
    for b, i, j, c in np.ndindex(want.shape):
        window = x[b, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c]
        want[b, i, j, c] = window.max()
        want_grad[b, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c] = (window == window.max()) * 2 * window.max()
    with jax.enable_x64(True):
        np.testing.assert_array_equal(max_pool2(jnp.asarray(x)), want)
        np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(max_pool2(x) ** 2))(jnp.asarray(x)), want_grad)


def test_max_pool_shares_the_gradient_of_a_tie():
    x = jnp.asarray([[3.0, 1.0], [3.0, 2.0]]).reshape(1, 2, 2, 1)
    np.testing.assert_allclose(jax.grad(lambda x: max_pool2(x).sum())(x).ravel(), [0.5, 0, 0.5, 0])


def test_cnn_shapes_and_number_of_parameters():
    net = Cnn(num_classes=10)
    params = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
    shapes = {"/".join(k.key for k in path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    assert shapes == {
        "params/Conv_0/kernel": (32, 5, 5, 1),
        "params/Conv_0/bias": (32,),
        "params/Conv_1/kernel": (64, 5, 5, 32),
        "params/Conv_1/bias": (64,),
        "params/Dense_0/kernel": (512, 7 * 7 * 64),
        "params/Dense_0/bias": (512,),
        "params/Dense_1/kernel": (10, 512),
        "params/Dense_1/bias": (10,),
    }
    assert sum(np.prod(s) for s in shapes.values()) == 1_663_370  # McMahan et al. 2017, section 3
    assert jax.eval_shape(net.apply, params, jnp.zeros((7, 28, 28, 1))).shape == (7, 10)


def test_cnn_is_conv_relu_pool_relu_dense():
    """The network applies relu after the pool; the textbook order in NumPy gives the same numbers."""
    net = Cnn(num_classes=3, channels=(2, 4), dense=5)
    with jax.enable_x64(True):
        (x,) = arrays((2, 4, 4, 1))
        params = jax.jit(net.init)(jax.random.key(0), jnp.asarray(x))
        params = jax.tree.map(lambda a: a + 0.1, params)  # biases that matter
        got = jax.jit(net.apply)(params, jnp.asarray(x))
    p = jax.tree.map(np.asarray, params["params"])
    for name in ("Conv_0", "Conv_1"):
        x = np.maximum(numpy_conv(x, p[name]["kernel"], "SAME") + p[name]["bias"], 0)
        x = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).max((2, 4))
    x = np.maximum(x.reshape(len(x), -1) @ p["Dense_0"]["kernel"].T + p["Dense_0"]["bias"], 0)
    np.testing.assert_allclose(got, x @ p["Dense_1"]["kernel"].T + p["Dense_1"]["bias"], atol=1e-12)


@pytest.mark.parametrize(
    ("module", "shape", "fan_in"), [(Conv(256, 5), (1, 6, 6, 16), 5 * 5 * 16), (Dense(50), (1, 2000), 2000)]
)
def test_initial_kernels_have_variance_one_over_fan_in(module, shape, fan_in):
    params = jax.jit(module.init)(jax.random.key(0), jnp.zeros(shape))["params"]
    assert np.std(params["kernel"]) * fan_in**0.5 == pytest.approx(1, abs=0.02)  # 1e5 weights: 0.002 standard error
    assert not np.any(params["bias"])


def test_dense_without_bias_is_a_matrix_product():
    x, kernel = arrays((4, 3), (2, 3))
    with jax.enable_x64(True):
        y = Dense(2, use_bias=False).apply({"params": {"kernel": jnp.asarray(kernel)}}, jnp.asarray(x))
    np.testing.assert_allclose(y, x @ kernel.T, atol=1e-12)


def test_clients_gradients_under_vmap_equal_a_loop():
    net = Cnn(num_classes=3, channels=(2,), dense=4)
    with jax.enable_x64(True):
        x = jnp.asarray(arrays((3, 2, 4, 4, 1))[0])
        params = jax.jit(net.init)(jax.random.key(1), x[0])
        params = jax.tree.map(lambda a: jnp.stack([a, 2 * a, a - 0.1]), params)
        grad = jax.jit(jax.grad(lambda p, x: jnp.sum((net.apply(p, x) - 1) ** 2)))
        got = jax.vmap(grad)(params, x)
        clients = [grad(jax.tree.map(lambda a, c=c: a[c], params), x[c]) for c in range(3)]
        assert all(np.any(g != 0) for g in jax.tree.leaves(clients))
        chex.assert_trees_all_close(got, jax.tree.map(lambda *g: jnp.stack(g), *clients), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("x", "kernel", "options", "message"),
    [
        ((2, 6, 6), (1, 3, 3, 1), {}, r"x: got shape \(2, 6, 6\)"),
        ((2, 6, 6, 2), (1, 3, 3, 1), {}, "kernel: got shape .* in = 2"),
        ((2, 6, 6, 1), (3, 3, 1), {}, "kernel: got shape"),
        ((2, 6, 6, 1), (1, 4, 3, 1), {}, "kernel: got size 4 x 3, wanted odd"),
        ((2, 6, 6, 1), (1, 7, 3, 1), {"padding": "VALID"}, "kernel: got size 7 x 3, wanted at most"),
        ((2, 6, 6, 1), (1, 3, 3, 1), {"padding": "same"}, "padding: got 'same'"),
        ((2, 6, 6, 1), (1, 3, 3, 1), {"method": "fft"}, "method: got 'fft'"),
    ],
)
def test_conv_refuses(x, kernel, options, message):
    with pytest.raises(ValueError, match=message):
        conv2d(jnp.zeros(x), jnp.zeros(kernel), **options)


@pytest.mark.parametrize("shape", [(1, 5, 4, 1), (1, 4, 5, 1), (4, 4, 1)])
def test_max_pool_refuses(shape):
    with pytest.raises(ValueError, match="x: got shape .* even H and W"):
        max_pool2(jnp.zeros(shape))
