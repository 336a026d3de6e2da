"""What a coalition has of a run that the NumPy oracle played."""

import numpy as np

from jaxfed.privacy.transcript import Pass, View


def view(blocks, run, parties, *, loss="logistic", aggregated=False):
    """The view of passive parties of `tests.reference.privacy_labels.simulate`, without masks or trees."""
    own = list(parties)
    count, b = run["rows"].shape
    return View(
        parties=tuple(own),
        x=np.hstack([blocks[p] for p in own]),
        w=np.hstack([run["weights"][p] for p in own]),
        labels=None,
        tick=np.arange(count),
        time=np.arange(1.0, count + 1),
        dominator=run["dominator"],
        update=np.arange(count),
        rows=run["rows"],
        theta=None if aggregated else run["theta"],
        gradients=np.hstack([run["gradients"][p] for p in own]) if aggregated else None,
        scores=np.full((count, b), np.nan),
        products=run["products"][:, :, own],
        masks=None,
        sums=(),
        passes=tuple(Pass(tick, theta, np.full(len(theta), np.nan)) for tick, theta, _ in run["passes"]),
        loss=loss,
        regularizer="l2",
        l2=1e-4,
        lr=0.1,
        batch_size=b,
        num_parties=len(blocks),
        fraction_bits=None,
    )
