"""What each score that a coalition knows says about the other parties' rows: a linear equation.

z_j less the coalition's own products is sum_p w_p . x_jp over the others, and each w_p is a known combination of
unknown rows (`jaxfed.privacy.dual`): value = decay (w_start . x_j) + sum_i beta_i K_ij, where K_ij = x_i . x_j over the
others. `jaxfed.privacy.gram` solves these.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, one_of
from jaxfed.privacy.dual import Messages, messages, play
from jaxfed.privacy.transcript import View


class Equations(NamedTuple):
    """E evaluations of scores: value = sum over groups g of (decay_g start_g(row) + sum_i beta_gi K^g(column_i, row)).

    row int [E]: whose score. value [E]: z less own products. moment int [E]: its place in beta [M, g, c] and decay
    [M, g], those of each group's blocks when they were read. columns int [c]. groups: other parties; those that read
    and applied everything in the same ticks are one group, as only the sum of their K shows.
    """

    row: np.ndarray
    value: np.ndarray
    moment: np.ndarray
    beta: np.ndarray
    decay: np.ndarray
    columns: np.ndarray
    groups: tuple[tuple[int, ...], ...]


def logistic_scores(theta: np.ndarray) -> np.ndarray:
    """Return z from theta = -y / (1 + exp(y z)), the logistic loss, any shape: y = -sign(theta), so no label is needed.

    So whoever gets theta knows every score, as a dominator does (`equations(view, scores=...)`).
    """
    theta = np.asarray(theta, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.sign(theta) * (np.log1p(-np.abs(theta)) - np.log(np.abs(theta)))


def others(view: View, scores: np.ndarray | None = None) -> np.ndarray:
    """Return the other parties' part of each score, [N, b]: z less own products; NaN where z is unknown.

    scores [N, b]: z of updates that the coalition did not dominate.
    """
    z = np.asarray(view.scores, float)
    if scores is not None:
        if np.shape(scores) != z.shape:
            fail("scores", f"shape {np.shape(scores)}", f"{z.shape}, one for each row of each update")
        z = np.where(np.isnan(z), np.asarray(scores, float), z)
    return z - np.asarray(view.products, float).sum(-1)


def equations(
    view: View,
    *,
    method: str = "sgd",
    applied: np.ndarray | None = None,
    read: np.ndarray | None = None,
    scores: np.ndarray | None = None,
    pass_scores: Sequence[np.ndarray] | None = None,
    pass_products: Sequence[np.ndarray] | None = None,
    rows: Any = None,
    use: str = "all",
    first_tick: int = 0,
) -> Equations:
    """Return one equation for each known score.

    method, first_tick: see `dual.messages`. rows: whose scores to use (None: all). use: "all", "updates" or "passes".

    What a coalition does not know by itself, and may be given: applied int [N, q], the tick in which each party applied
    each update (-1: not in the window); read int [N, q], the tick in which it evaluated its product (-1: before the
    window, and the score is left out). Without them both are taken to be the completion's, which is the truth for the
    Synchronous scheduler only. scores [N, b], pass_scores (each [n]): z of updates and passes that it did not dominate.
    pass_products (each [n]): its own products in the passes; None: those that the view holds, else from its weights at
    the window's end.

    Messages completed before the window and applied in it are in no view, so a window should begin with the run, or at
    a reference point, where nothing is on its way. Raises ValueError that names the field.
    """
    one_of("use", use, ("all", "updates", "passes"))
    sent = messages(view, method, first_tick)
    applied, read = _ticks("applied", applied, view), _ticks("read", read, view)
    groups = _groups(view, applied, read)
    wanted = np.ones(len(view.x), bool)
    if rows is not None:
        wanted = np.isin(np.arange(len(view.x)), rows)
    value = others(view, scores)
    outside = read[:, [p for p in range(view.num_parties) if p not in view.parties]].min(1, initial=0) < 0
    value[outside] = np.nan  # of weights from before the window
    update, place = np.nonzero(~np.isnan(value) & wanted[view.rows] & (use != "passes"))
    moments, moment = np.unique(update, return_inverse=True)
    row, values, moment, at = [view.rows[update, place]], [value[update, place]], [moment], [read[moments]]
    passes = [] if use == "updates" else _passes(view, sent, applied, pass_scores, pass_products)
    for k, (tick, rest) in enumerate(passes):
        here = np.flatnonzero(wanted & ~np.isnan(rest))
        row.append(here)
        values.append(rest[here])
        moment.append(np.full(len(here), len(moments) + k))
        at.append(np.full((1, view.num_parties), tick))
    at = np.concatenate(at)
    made = [play(sent, applied[:, group[0]], at[:, group[0]]) for group in groups]
    beta, decay = (np.stack(parts, 1) for parts in zip(*made, strict=True))
    row, values, moment = (np.concatenate(parts) for parts in (row, values, moment))
    return Equations(row, values, moment, beta, decay, sent.columns, groups)


def steps(beta: np.ndarray, value: np.ndarray, decay: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each equation, beta [E, ...] and value [E], less what the one before it, of the same row, foretells.

    In exact arithmetic that changes nothing. But a float32 run rounds its weights at every step and these errors add
    up, so that scores far from the start share more of them than of anything else: between neighbours they cancel.
    decay [E]: of the weights; row int [E], equal ones together and in the order of time.
    """
    # any ratio is exact; where the decay has fallen below the smallest float, none is known and 0 will do
    same = (row[1:] == row[:-1]) & (decay[:-1] > 0)
    ratio = np.divide(decay[1:], decay[:-1], out=np.zeros(len(same)), where=same)
    beta, value = beta.copy(), value.copy()
    beta[1:], value[1:] = (
        beta[1:] - ratio.reshape(-1, *[1] * (beta.ndim - 1)) * beta[:-1],
        value[1:] - ratio * value[:-1],
    )
    return beta, value


def _ticks(field: str, given: Any, view: View) -> np.ndarray:
    shape = (len(view.tick), view.num_parties)
    if given is None:
        return np.broadcast_to(np.asarray(view.tick)[:, None], shape)
    if np.shape(given) != shape:
        fail(field, f"shape {np.shape(given)}", f"{shape}, a tick for each update and party")
    return np.asarray(given)


def _groups(view: View, applied: np.ndarray, read: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the other parties, together those that did everything in the same ticks."""
    groups: dict[bytes, list[int]] = {}
    for party in range(view.num_parties):
        if party not in view.parties:
            groups.setdefault(np.stack([applied[:, party], read[:, party]]).tobytes(), []).append(party)
    if not groups:
        fail("view.parties", view.parties, "fewer than all parties")
    return tuple(map(tuple, groups.values()))


def _passes(view: View, sent: Messages, applied: np.ndarray, scores: Any, products: Any) -> list[tuple]:
    """Return the tick and the others' part of the scores, [n], of each pass whose scores are known."""
    scores = [p.scores for p in view.passes] if scores is None else scores
    if len(scores) != len(view.passes):
        fail("pass_scores", f"{len(scores)} passes", f"{len(view.passes)}, as the view has")
    known = [k for k, z in enumerate(scores) if not np.all(np.isnan(z))]
    ticks = np.array([p.tick for p in view.passes])
    if products is None:
        told = [p.products for p in view.passes if p.products is not None]
        products = [own.sum(1) for own in told] if len(told) == len(view.passes) else None
    if products is None and not known:
        return []
    if products is None:
        if len({applied[:, party].tobytes() for party in view.parties}) > 1:
            fail("pass_products", None, "own products in the passes: the coalition's parties apply at different ticks")
        beta, decay = play(sent, applied[:, view.parties[0]], np.append(ticks, np.iinfo(np.int64).max))
        x, w = np.asarray(view.x, float), np.asarray(view.w, float)
        moved = beta @ x[sent.columns]
        start = (w - moved[-1]) / decay[-1]
        products = (decay[:-1, None] * start + moved[:-1]) @ x.T
    return [(int(ticks[k]), np.asarray(scores[k], float) - np.asarray(products[k], float)) for k in known]
