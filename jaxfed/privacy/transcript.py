"""Who saw what: every value that each party received in a window of a run. The basis of every attack.

`record` plays a run and returns its `Transcript`, which holds the truth too; `Transcript.view` gives a coalition of
parties what it has: its own data and all that it received, and nothing else.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from jaxfed.checks import fail
from jaxfed.vertical.aggregation import edges, leaves
from jaxfed.vertical.blocks import matrix


class Pass(NamedTuple):
    """A pass in which theta of every row is sent to all: SAGA's start, SVRG's reference points.

    tick: the tick before which it happened. theta [n]: what was sent. scores [n]: what the dominator computed it from.
    products [n, q]: each party's part of these; of a view [n, C], the coalition's own (None: not known).
    """

    tick: int
    theta: np.ndarray
    scores: np.ndarray
    products: np.ndarray | None = None


class Sum(NamedTuple):
    """What one party received over one edge of a tree: a value for each row of each update of one dominator.

    tree: 1 (masked products) or 2 (masks). sender, receiver: parties. leaves: the parties whose numbers were added up.
    updates int [N_a]: which rows of the view's arrays these are. values [N_a, b]: floats, or uint32 / uint64 numbers
    modulo 2^32 / 2^64 (see `vertical.secure`).
    """

    tree: int
    sender: int
    receiver: int
    leaves: tuple[int, ...]
    updates: np.ndarray
    values: np.ndarray


class View(NamedTuple):
    """What a coalition has after a window of N dominated updates, in the order in which they were completed.

    parties: the coalition. x [n, d_own]: its own features, its parties one after the other; w [d_own]: its own weights
    at the window's end. labels [n]: -1, +1 or targets where one of it is active, else None.

    tick int [N]; time [N], simulated seconds; dominator int [N], a party number; update int [N], the dominator's own
    number; rows int [N, b]: which samples. theta [N, b]: what was sent; None where only `gradients` [N, d_own] are:
    the mean over the update's rows of theta times own features. scores [N, b]: z of the updates that it dominated, NaN
    elsewhere. products [N, b, C]: its own partial products; masks [N, b, C]: its own masks, or None. sums: what
    it received over the trees. passes: full passes (scores NaN where no party of it is active).

    Known to all: loss, a name (see `vertical.Objective`), regularizer, l2, lr (a number, or one per tick of the
    window), batch_size, num_parties, fraction_bits of fixed-point masks (None: floats, or no masks).
    """

    parties: tuple[int, ...]
    x: np.ndarray
    w: np.ndarray
    labels: np.ndarray | None
    tick: np.ndarray
    time: np.ndarray
    dominator: np.ndarray
    update: np.ndarray
    rows: np.ndarray
    theta: np.ndarray | None
    gradients: np.ndarray | None
    scores: np.ndarray
    products: np.ndarray
    masks: np.ndarray | None
    sums: tuple[Sum, ...]
    passes: tuple[Pass, ...]
    loss: str
    regularizer: str
    l2: float
    lr: Any
    batch_size: int
    num_parties: int
    fraction_bits: int | None


class Transcript(NamedTuple):
    """A window of a run: N dominated updates in the order in which they were completed, and the truth behind them.

    party: the run's PartyData, on the host. window: its first tick and the one after its last. tick, time, dominator,
    update, rows, theta: as in `View`. scores: z [N, b]. products [N, b, q]: plain. hidden, masks [N, b, q]: o + delta,
    as sent, and delta; None without `secure`. read, applied int [N, q]: in which tick each party read its product for
    the update, perhaps before the window, and moved by it (-1: not in the window). weights: at the window's end, as the
    blocks have them. trees: one pair per dominator. aggregated: whether parties receive only the mean of theta times
    their features. backward: whether passive parties receive anything. state: the final one of a run, if the window
    reaches its end, else None.
    """

    party: Any
    window: tuple[int, int]
    tick: np.ndarray
    time: np.ndarray
    dominator: np.ndarray
    update: np.ndarray
    rows: np.ndarray
    scores: np.ndarray
    theta: np.ndarray
    products: np.ndarray
    hidden: np.ndarray | None
    masks: np.ndarray | None
    read: np.ndarray
    applied: np.ndarray
    passes: tuple[Pass, ...]
    weights: np.ndarray
    trees: tuple | None
    loss: str
    regularizer: str
    l2: float
    lr: Any
    batch_size: int
    fraction_bits: int | None
    aggregated: bool
    backward: bool
    state: Any

    def __repr__(self) -> str:
        """Say what there is, without the arrays."""
        start, stop = self.window
        return f"Transcript({len(self.tick)} updates in ticks {start} to {stop - 1}, {self.products.shape[2]} parties)"

    def seen(self) -> str:
        """Return who saw what, as text: how many values of each kind each party received."""
        lines = [f"{'party':>5} {'labels':>6} {'thetas':>9} {'gradients':>9} {'sums of products':>16} {'of masks':>9} "
                 f"{'scores':>9} {'passes':>6}"]  # fmt: skip
        for party in range(self.products.shape[2]):
            view = self.view(party)
            count = lambda x: 0 if x is None else int(np.isfinite(x).sum())  # noqa: E731
            over = [sum(s.values.size for s in view.sums if s.tree == tree) for tree in (1, 2)]
            own = view.theta if view.theta is None or view.labels is None else view.theta[view.dominator != party]
            gradients = 0 if view.gradients is None else len(view.gradients)
            lines.append(f"{party:>5} {'' if view.labels is None else 'yes':>6} {count(own):>9} {gradients:>9} "
                         f"{over[0]:>16} {over[1]:>9} {count(view.scores):>9} {len(view.passes):>6}")  # fmt: skip
        hidden = "as they are" if self.hidden is None else "masked"
        return f"values received in ticks {self.window[0]} to {self.window[1] - 1} (products {hidden})\n" + "\n".join(
            lines
        )

    def view(self, parties: Any) -> View:
        """Return what a coalition (a party number, or several) has after the window.

        Without `secure` the dominator receives every product as it is, and its view has them as sums of one. Raises
        ValueError for numbers that are no parties.
        """
        own = tuple(sorted({int(p) for p in np.atleast_1d(parties)}))
        q = self.products.shape[2]
        if not own or not set(own) <= set(range(q)):
            fail("parties", repr(parties), f"numbers of parties, 0 to {q - 1}")
        active = any(p in self.party.active for p in own)
        mine = np.isin(self.dominator, own)[:, None]
        x, w = _own(self.party, own, np.asarray(self.weights))
        told = self.backward or active
        theta = self.theta if told and not self.aggregated else np.where(mine, self.theta, np.nan) if active else None
        gradients = None
        if told and self.aggregated:
            # in float64, as what an exact protocol (encrypted, in fixed point) would give
            theta64 = np.asarray(self.theta, float)
            gradients = np.einsum("nb,nbd->nd", theta64, np.asarray(x, float)[self.rows]) / self.batch_size
        passes = self.passes if told and not self.aggregated else ()
        if not active:
            passes = tuple(each._replace(scores=np.full_like(each.scores, np.nan)) for each in passes)
        passes = tuple(p if p.products is None else p._replace(products=p.products[:, list(own)]) for p in passes)
        return View(
            parties=own,
            x=x,
            w=w,
            labels=np.asarray(self.party.y) if active else None,
            tick=self.tick,
            time=self.time,
            dominator=self.dominator,
            update=self.update,
            rows=self.rows,
            theta=theta,
            gradients=gradients,
            scores=np.where(mine, self.scores, np.nan),
            products=self.products[:, :, list(own)],
            masks=None if self.masks is None else self.masks[:, :, list(own)],
            sums=tuple(_received(self, own)),
            passes=passes,
            loss=self.loss,
            regularizer=self.regularizer,
            l2=self.l2,
            lr=self.lr,
            batch_size=self.batch_size,
            num_parties=q,
            fraction_bits=self.fraction_bits,
        )


def _own(party: Any, parties: tuple[int, ...], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features [n, d_own] and the weights [d_own] of some parties."""
    first = np.cumsum((0, *party.sizes))
    index = np.concatenate([np.arange(first[p], first[p + 1]) for p in parties])
    x, mask = matrix(party.blocks)[:, index], party.blocks.mask()
    flat = weights[mask] if weights.shape == mask.shape else weights
    return x.toarray() if sparse.issparse(x) else x, flat[index]


def _received(transcript: Transcript, own: tuple[int, ...]) -> list[Sum]:
    """Return what members of a coalition received over the trees, or directly where there are none."""
    found = []
    for a, root in enumerate(transcript.party.active):
        rows = np.flatnonzero(transcript.dominator == root)
        if transcript.trees is None:
            products = transcript.products[rows]
            others = [p for p in range(products.shape[2]) if p != root and root in own]
            found += [Sum(1, p, root, (p,), rows, products[:, :, p]) for p in others]
            continue
        for tree, numbers, pair in zip((1, 2), (transcript.hidden, transcript.masks), transcript.trees[a], strict=True):
            assert numbers is not None  # trees have masks
            sums = _branch_sums(pair, numbers[rows])
            found += [
                Sum(tree, edge.sender, edge.receiver, edge.leaves, rows, sums[edge.leaves])
                for edge in edges(pair)
                if edge.receiver in own
            ]
    return found


def _branch_sums(tree: Any, numbers: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """Return the sums [N_a, b] of numbers [N_a, b, q] over every branch of a tree, in its order, by sorted leaves."""
    found = {}

    def walk(branch):
        total = walk(branch[0]) if isinstance(branch, tuple) else numbers[:, :, branch]
        for part in branch[1:] if isinstance(branch, tuple) else ():
            total = total + walk(part)  # unsigned integers wrap, as they should
        found[tuple(sorted(leaves(branch)))] = total
        return total

    walk(tree)
    return found
