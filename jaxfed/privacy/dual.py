"""What a party's block is made of: known combinations of its unknown rows.

A block moves by known numbers times its rows, w <- (1 - k lr l2) w - lr sum over k messages of (c x_i / b + mean),
where mean = sum_j m_j x_j for SVRG and SAGA. So at any tick w = decay w_start + sum_i beta_i x_i, and decay and beta
are known to all who got the messages and know when the party applied them.
"""

from typing import NamedTuple

import numpy as np

from jaxfed.checks import fail, one_of
from jaxfed.privacy.transcript import View

METHODS = ("sgd", "svrg", "saga")


class Messages(NamedTuple):
    """What parties move by, ready to be played.

    columns int [c]: the samples that blocks are made of. place int [N, b]: each row's place in `columns`. values
    [N, b]: what the rows are multiplied by. means: (tick, [c]) of each pass: the mean gradient's coefficients from that
    tick on. mean_moves: whether messages move it (SAGA). lr: a number, or one per tick from `first_tick`. l2: 0 without
    a regulariser. num_rows: n.
    """

    columns: np.ndarray
    place: np.ndarray
    values: np.ndarray
    means: tuple[tuple[int, np.ndarray], ...]
    mean_moves: bool
    lr: np.ndarray
    first_tick: int
    l2: float
    num_rows: int


def messages(view: View, method: str = "sgd", first_tick: int = 0) -> Messages:
    """Return what the parties of a run move by, as all of them know it.

    method: "sgd", "svrg" or "saga". Views hold theta; SVRG and SAGA move by theta less what the row had before.
    first_tick: of the window, where `view.lr` is a schedule. The regulariser "nonconvex" is taken for "l2", which it is
    up to terms lr l2 w^3. Raises ValueError that names the field.
    """
    one_of("method", method, METHODS)
    if view.theta is None:
        fail("view", "gradients without theta", "a view with theta (jaxfed.privacy.residue finds it from gradients)")
    if np.isnan(view.theta).any():
        fail("view.theta", "theta of the coalition's own updates only", "that of all: parties moved by the others too")
    theta, rows, n = np.array(view.theta, float), np.asarray(view.rows), len(view.x)
    columns, place = np.unique(rows, return_inverse=True)
    means: tuple = ()
    if method != "sgd":
        columns, place = np.arange(n), rows
        passes = [(p.tick, np.asarray(p.theta, float)) for p in view.passes]
        first = min(view.tick, default=0)
        if not passes or passes[0][0] > first:
            fail("view.passes", f"passes before ticks {[tick for tick, _ in passes]}", f"one before tick {first}, the "
                 f"window's first update: {method} moves by what it told")  # fmt: skip
        means = tuple((tick, sent / n) for tick, sent in passes)
        if method == "svrg":
            last = np.searchsorted([tick for tick, _ in passes], view.tick, side="right") - 1
            theta -= np.stack([sent for _, sent in passes])[last[:, None], rows]
        else:
            table = passes[0][1].copy()
            for u in range(len(rows)):
                for k, row in enumerate(rows[u]):  # one after the other: a row that comes twice sees itself
                    theta[u, k], table[row] = theta[u, k] - table[row], theta[u, k]
            means = means[:1]
    l2 = 0.0 if view.regularizer == "none" else float(view.l2)
    lr = np.asarray(view.lr, float)
    return Messages(columns, place.reshape(rows.shape), theta, means, method == "saga", lr, first_tick, l2, n)


def play(sent: Messages, applied: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return beta [E, c] and decay [E] as at the beginning of ticks `at` int [E], from beta 0 and decay 1.

    applied int [N]: the tick in which the party applied each message; -1: not in the window.
    """
    beta, decay, mean = np.zeros(len(sent.columns)), 1.0, np.zeros(len(sent.columns))
    betas, decays = np.zeros((len(at), len(beta))), np.ones(len(at))
    order = np.argsort(applied, kind="stable")
    order = order[applied[order] >= 0]
    ticks, starts = np.unique(applied[order], return_index=True)
    asked = np.argsort(at, kind="stable")
    done, passed = 0, 0
    for tick, due in zip(ticks, np.split(order, starts[1:]), strict=False):
        last = np.searchsorted(at[asked], tick, side="right")  # in a tick, reads come before applies
        betas[asked[done:last]], decays[asked[done:last]], done = beta, decay, last
        while passed < len(sent.means) and sent.means[passed][0] <= tick:
            mean, passed = sent.means[passed][1], passed + 1
        moved = np.zeros(len(beta))
        np.add.at(moved, sent.place[due], sent.values[due])
        lr = sent.lr if sent.lr.ndim == 0 else sent.lr[tick - sent.first_tick]
        shrink = 1 - len(due) * lr * sent.l2  # all from the block as the tick found it
        beta = shrink * beta - lr * (moved / sent.place.shape[1] + len(due) * mean)
        decay *= shrink
        if sent.mean_moves:
            mean = mean + moved / sent.num_rows
    betas[asked[done:]], decays[asked[done:]] = beta, decay
    return betas, decays
