"""The Gram attack on transcripts of jaxfed's own runs: what the engine does is what the attacks take it to do."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.privacy import gram, low_rank
from jaxfed.privacy.equations import equations
from jaxfed.privacy.recording import record
from jaxfed.vertical.objective import Objective
from tests.vertical_support import METHODS, federation


def truth(blocks, who):
    return sum(block @ block.T for p, block in enumerate(blocks) if p not in who)


@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_every_score_of_an_asynchronous_run_is_foretold(x64, method, batch_size):
    """Equations with the true inner products in them: any error in the order of reads and applies would show."""
    party, blocks, _ = federation(n=30)
    algorithm = METHODS[method](Objective(l2=1e-2), lr=0.05, batch_size=batch_size)
    scheduler = jf.vertical.BilevelAsync(party, link=2.0).slow(3, update=4)
    run = record(0, algorithm, party, scheduler=scheduler, num_rounds=400)
    known = {"applied": run.applied, "read": run.read, "method": method}
    system = equations(run.view(0), **known)
    assert system.groups == ((1,), (2,), (3,))
    foretold = 0
    for k, (p,) in enumerate(system.groups):
        inner = (blocks[p] @ blocks[p].T)[system.columns]
        foretold = foretold + np.sum(system.beta[system.moment, k] * inner[:, system.row].T, 1)
    np.testing.assert_allclose(foretold, system.value, atol=1e-12)
    blind = equations(run.view(0), method=method)
    foretold = np.sum(blind.beta[blind.moment, 0] * truth(blocks, (0,))[blind.columns][:, blind.row].T, 1)
    assert np.abs(foretold - blind.value).max() > 1e-3


def test_masks_do_not_help():
    party, blocks, _ = federation(n=20, sizes=(2, 1, 2))
    algorithm = jf.VFB2SGD(Objective(l2=1e-3), lr=0.2, secure=jf.vertical.SecureAggregation())
    run = record(0, algorithm, party, scheduler=jf.vertical.Synchronous(party), num_rounds=1500)
    view, inner = run.view(0), truth(blocks, (0,))
    assert view.masks is not None
    found = gram.attack(view, at_zero=True)
    assert found.determined.all()
    expected = inner[np.ix_(found.rows, found.columns)]
    assert np.abs(found.gram - expected).max() < 1e-2 * np.abs(inner).max()  # masks as floats: they cost digits
    few = record(0, algorithm.replace(secure=None), party, scheduler=jf.vertical.Synchronous(party), num_rounds=200)
    low = low_rank.attack(few.view(0), 3, rng=np.random.default_rng(0))
    expected = inner[np.ix_(low.columns, low.columns)]
    assert np.linalg.norm(low.gram - expected) < 1e-4 * np.linalg.norm(expected)
