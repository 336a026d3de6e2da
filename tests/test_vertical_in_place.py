"""No large array is copied inside a compiled loop of ticks: read from the program that XLA made."""

import re

import jax
import numpy as np
import pytest
from scipy import sparse

import jaxfed as jf
from jaxfed import core, runner
from jaxfed.vertical import BilevelAsync, Objective
from jaxfed.vertical.data import Depths

N, D = 5003, 30011


def program(method, sparse_form):
    """The optimized HLO of a run."""
    rng = np.random.default_rng(0)
    if sparse_form:
        x = sparse.random(N, D, density=20 / D, format="csr", random_state=0, dtype=np.float32)
    else:
        x = rng.normal(size=(N, 7)).astype(np.float32)
    party = jf.vertical.split(x, np.arange(N) % 2, num_parties=3, num_active=2, seed=0)
    algorithm = method(Objective("logistic", "l2", 1e-4), lr=0.1)
    plan = jf.vertical.plan(algorithm, party, BilevelAsync(party), 50)
    placed = party.place(Depths(plan.read_depth, plan.message_depth))
    args = (jax.random.key(0), runner.cast(algorithm, to_float=True), runner.cast(plan.scheduler), placed)
    carry = jax.eval_shape(core.init, args[0], args[1], placed)
    return jax.jit(core.advance, donate_argnums=4).lower(*args, carry, 50).compile().as_text()


def loops(text):
    """The text of each computation that is the innermost body of a loop: those that hold no loop themselves."""
    bodies = set(re.findall(r"body=(%[\w.\-]+)", text))
    whole = {name: re.search(rf"\n{re.escape(name)} \(.*?\n}}", text, re.S).group(0) for name in bodies}
    return {name: body for name, body in whole.items() if " while(" not in body}


@pytest.mark.parametrize(
    "method, form",  # with dense blocks only SAGA's table is large in the loop of ticks
    [
        (jf.VFB2SAGA, "dense"),
        (jf.VFB2SAGA, "sparse"),
        *(pytest.param(method, "sparse", marks=pytest.mark.slow) for method in (jf.VFB2SGD, jf.VFB2SVRG)),
    ],
)
def test_no_copy_of_a_large_array_in_the_loop_of_ticks(method, form):
    large = {N, N + 1, D}
    found = loops(program(method, form == "sparse"))
    touches = [b for b in found.values() if any(f"[{size}]" in b for size in large)]
    assert touches, "the test must see the loop that it is about"
    for body in touches:
        for line in body.splitlines():
            made = re.match(r"\s*(?:ROOT )?%[\w.\-]+ = f(?:32|64)\[(\d+)\][^ ]* (copy|select)\(", line)
            assert not (made and int(made.group(1)) in large), line.strip()[:200]
