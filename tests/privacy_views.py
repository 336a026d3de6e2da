"""A coalition's view of a run of `tests.reference.privacy_features`."""

import numpy as np

from jaxfed.privacy.transcript import Pass, View


def view_of(run, parties, *, loss="logistic", regularizer="l2"):
    parties = tuple(parties)
    own = np.isin(run.dominator, parties)
    labelled = bool(own.any())
    passes = tuple(Pass(tick, theta, scores if labelled else np.full_like(scores, np.nan))
                   for tick, theta, scores, _ in run.passes)  # fmt: skip
    return View(
        parties=parties,
        x=np.concatenate([run.x[p] for p in parties], 1),
        w=np.concatenate([run.w[p] for p in parties]),
        labels=run.y if labelled else None,
        tick=run.tick,
        time=run.tick.astype(float),
        dominator=run.dominator,
        update=run.update,
        rows=run.rows,
        theta=run.theta,
        gradients=None,
        scores=np.where(own[:, None], run.scores, np.nan).astype(run.scores.dtype),
        products=run.products[:, :, list(parties)],
        masks=None,
        sums=(),
        passes=passes,
        loss=loss,
        regularizer=regularizer,
        l2=run.l2,
        lr=run.lr,
        batch_size=run.rows.shape[1],
        num_parties=len(run.x),
        fraction_bits=None,
    )


def others_gram(run, parties):
    """The true sum of the other parties' Gram matrices, [n, n]."""
    return sum(np.asarray(block, float) @ np.asarray(block, float).T
               for p, block in enumerate(run.x) if p not in parties)  # fmt: skip
