"""Who saw what: every value that each party received in a window of a run. The basis of every attack.

`record` plays a run and returns its `Transcript`, which holds the truth too; `Transcript.view` gives a coalition of
parties what it has: its own data and all that it received, and nothing else.
"""

from typing import Any, NamedTuple

import numpy as np


class Pass(NamedTuple):
    """A pass in which theta of every row is sent to all: SAGA's start, SVRG's reference points.

    tick: the tick before which it happened. theta [n]: what was sent. scores [n]: what the dominator computed it from.
    """

    tick: int
    theta: np.ndarray
    scores: np.ndarray


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
