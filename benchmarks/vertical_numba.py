"""What jaxfed's vertical replay is measured against: sequential loops compiled by numba over the same tables.

`python -m benchmarks.vertical_numba` checks them against plain Python, then prints microseconds a tick. The loops are
in `vertical_kernels`; NumPy and plain Python ones in `vertical_loops`.
"""

import time

import numpy as np

from benchmarks import vertical_kernels as kernels
from benchmarks import vertical_loops as loops

METHODS = ("sgd", "svrg", "saga")


def dense(table, rows, x, y, *, method="sgd", lr, l2, w0=None, loss="logistic", fastmath=True, fixed=True,
          kernel=True):  # fmt: skip
    """A function without arguments that replays the table and returns w float32 [q, d].

    table: read, complete, apply, snapshot (further fields are ignored). rows [m, update, b]: the sample numbers of each
    dominator's updates. x [q, n, d], y [n]; w0 [q, d], by default zeros. SVRG and SAGA begin with a full pass at w0,
    made here and not in the replay; SVRG makes another at every snapshot. kernel=False: the NumPy loop, logistic only.
    """
    x, y, rows, w0, cut = _prepare(table, rows, np.moveaxis(np.asarray(x, np.float32), 0, 1), y, w0)
    (n, q, d), (m, _, b), (ahead, ring) = x.shape, rows.shape, loops.depths(table)
    run = kernels.dense(method, loss, m, q, d, b, ahead, ring, fastmath, fixed) if kernel else None
    start = np.zeros(n, np.float32), np.zeros((q, d), np.float32)
    if method != "sgd":
        kernels.full_pass(loss, fastmath)(x, y, w0, *start)

    def replay():
        w, (reference, mean) = w0.copy(), (part.copy() for part in start)
        if run is None:
            number = {"lr": np.float32(lr), "l2": np.float32(l2)}
            return loops.numpy_loop(cut, rows, x, y, method=method, w=w, reference=reference, mean=mean, **number)
        state = _buffers(m, q, b, ahead, ring)
        run(*cut, rows, x, y, np.float32(lr), np.float32(l2), w, reference, mean, *state)
        return w

    return replay


def sparse(table, rows, start, index, value, offsets, y, *, lr, l2, w0=None, loss="logistic", fastmath=True):
    """SGD as `dense` does it on rows packed by `pack`, with flat w [offsets[-1]]; party p owns offsets[p:p + 2]."""
    q = len(offsets) - 1
    w0 = np.zeros(offsets[-1], np.float32) if w0 is None else w0
    _, y, rows, w0, cut = _prepare(table, rows, index, y, w0)
    (m, _, b), (ahead, ring), offsets = rows.shape, loops.depths(table), np.asarray(offsets, np.int64)
    run = kernels.sparse(loss, m, q, b, ahead, ring, fastmath)

    def replay():
        w, scale, state = w0.copy(), np.ones(q), _buffers(m, q, b, ahead, ring)
        run(*cut[:3], rows, start, index, value, offsets, y, np.float32(lr), np.float64(l2), w, scale, *state)
        return (w * np.repeat(scale, np.diff(offsets))).astype(np.float32)

    return replay


def pack(indices, values):
    """(start [n q + 1], index, value) without padding, row by row, from padded indices and values [q, n, k]."""
    indices, values = np.moveaxis(indices, 0, 1), np.moveaxis(values, 0, 1)
    there = values != 0
    start = np.concatenate([[0], np.cumsum(there.sum(axis=2).ravel())]).astype(np.uint64)
    return start, indices[there].astype(np.uint32), values[there].astype(np.float32)


def _prepare(table, rows, x, y, w0):
    """Everything as the kernels want it; ValueError where they would read outside of an array."""
    x, y = np.ascontiguousarray(x), np.asarray(y, np.float32)
    cut = loops.Table(*(np.ascontiguousarray(column) for column in table[:4]))
    updates = int(cut[1].sum(axis=0).max()) + loops.depths(table)[0]
    if rows.shape[1] < updates or rows.min() < 0 or rows.max() >= len(y):
        raise ValueError(f"rows: got {rows.shape}, wanted at least {updates} updates of numbers in 0..{len(y) - 1}")
    w0 = np.zeros(x.shape[1:], np.float32) if w0 is None else np.array(w0, np.float32)
    return x, y, np.ascontiguousarray(rows, np.uint32), w0, cut


def _buffers(m, q, b, ahead, ring):
    """products, messages, completions."""
    return np.zeros((m, ahead, b, q), np.float32), np.zeros((m, ring, b), np.float32), np.zeros(m, np.uint64)


def parties(x, q, seed=0):
    """Columns of a dense x [n, d] dealt at random to q parties: float32 [q, n, d_max], padded with zeros."""
    dealt = np.array_split(np.random.default_rng(seed).permutation(x.shape[1]), q)
    out = np.zeros((q, len(x), max(map(len, dealt))), np.float32)
    for block, columns in zip(out, dealt, strict=True):
        block[:, : len(columns)] = x[:, columns]
    return out


def sparse_parties(x, q, seed=0):
    """Columns of CSR x [n, d] dealt at random to q parties: (start, index, value, offsets) as `sparse` takes them."""
    n, d = x.shape
    offsets = np.linspace(0, d, q + 1).astype(np.int64)
    x = x.copy()
    x.indices = np.random.default_rng(seed).permutation(d).astype(x.indices.dtype)[x.indices]
    x.has_sorted_indices = False
    x.sort_indices()
    party = np.searchsorted(offsets, x.indices, side="right") - 1
    counts = np.bincount(np.repeat(np.arange(n), np.diff(x.indptr)) * q + party, minlength=n * q)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    return start, x.indices.astype(np.uint32), x.data.astype(np.float32), offsets


def check():
    """Assert that the compiled and the NumPy loops agree with plain Python in float64 to 1e-6."""
    q, m, n, d, ticks = 3, 2, 20, 4, 150
    rng = np.random.default_rng(0)
    x, y, w0 = rng.normal(size=(q, n, d)), np.sign(rng.normal(size=n)), 0.1 * rng.normal(size=(q, d))
    x[:, :, -1] *= rng.random((q, n)) < 0.5
    indices = np.broadcast_to(np.arange(q * d).reshape(q, 1, d), x.shape)
    for b, epoch, ahead in ((1, None, 1), (3, 17, 1), (2, None, 3)):
        rows = rng.integers(0, n, (m, ticks + ahead + 4, b))
        random = loops.asynchronous(ticks, m, q, reads=0.7, applies=0.6, ahead=ahead, epoch=epoch)
        for table in (loops.synchronous(ticks, m, q), random):
            wanted = {}
            for method in METHODS:
                args, given = (table, rows), {"method": method, "lr": 0.05, "l2": 0.01}
                wanted[method] = loops.python_loop(*args, np.moveaxis(x, 0, 1), y, w0=w0, **given)
                for options in ({"fastmath": False}, {"fastmath": True}, {"fixed": False}, {"kernel": False}):
                    got = dense(*args, x, y, w0=w0, **given, **options)()
                    np.testing.assert_allclose(got, wanted[method], rtol=0, atol=1e-6)
            for l2 in (0.01, 0.3):  # the second has its scales renormalised
                exact = loops.python_loop(*args, np.moveaxis(x, 0, 1), y, method="sgd", lr=0.05, l2=l2, w0=w0)
                got = sparse(*args, *pack(indices, x), np.arange(q + 1) * d, y, lr=0.05, l2=l2, w0=w0.ravel())()
                np.testing.assert_allclose(got, np.ravel(exact), rtol=0, atol=1e-6)


def microseconds(replay, ticks, repeats=5):
    """Shortest time of a tick (other programs only lengthen it), after a first run that compiles."""
    replay()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        replay()
        times.append(time.perf_counter() - begin)
    return min(times) / ticks * 1e6


def main():
    """Print microseconds a tick for the shapes of the credit and the news20 data."""
    from jaxfed.datasets import synthetic

    check()
    q, m, ticks = 8, 3, 50_000
    tables = {"synchronous": loops.synchronous(ticks, m, q), "asynchronous": loops.asynchronous(ticks, m, q)}
    data = synthetic.credit_like(seed=0)
    x, y, rng = parties(data.x, q), 2.0 * data.y - 1, np.random.default_rng(0)
    rows = rng.integers(0, len(y), (m, ticks + 1, 1))
    print(f"dense, n {len(y)}, d {data.x.shape[1]}, q {q}, m {m}, b 1: microseconds a tick, without full passes")
    for name, table in tables.items():
        table.snapshot[:] = False
        print(f"{name}, {table.complete.sum() / ticks:.2f} dominated updates a tick")
        for method in METHODS:
            given = {"method": method, "lr": 0.01, "l2": 1e-4}
            fast, strict = (microseconds(dense(table, rows, x, y, fastmath=f, **given), ticks) for f in (True, False))
            part = loops.Table(*(column[:2000] for column in table))
            slow = microseconds(dense(part, rows, x, y, kernel=False, **given), 2000, 3)
            print(f"  {method:5} numba {fast:.3f}   without fastmath {strict:.3f}   NumPy loop {slow:.0f}")
    text = synthetic.news20_like(seed=0)
    packed, y = sparse_parties(text.x, q), 2.0 * text.y - 1
    rows = rng.integers(0, len(y), (m, ticks + 1, 1))
    print(f"sparse, n {len(y)}, d {text.x.shape[1]}, {text.x.nnz / len(y):.0f} values a row, q {q}, m {m}, b 1")
    for name, table in tables.items():
        part = loops.Table(*(column[:10_000] for column in table))
        fast, strict = (
            microseconds(sparse(part, rows, *packed, y, lr=0.1, l2=1e-4, fastmath=f), 10_000, 3) for f in (True, False)
        )
        print(f"  {name:12} sgd numba {fast:.2f}   without fastmath {strict:.2f}")


if __name__ == "__main__":
    main()
