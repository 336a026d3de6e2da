"""The clients' stacked state is updated in place: the compiled round holds no copy of it."""

import re

import jax
import pytest

import jaxfed as jf
from jaxfed import machine, parallel, runner, testing


def compiled(algorithm, group, cohort=None):
    data = testing.ragged_data(sizes=(5, 9, 3, 7, 4, 6))
    scheduler = data.default_scheduler() if cohort is None else jf.horizontal.UniformCohort(6, cohort)
    algorithm, scheduler = runner.cast(algorithm, to_float=True), runner.cast(scheduler)
    placed, key = data.place(algorithm, scheduler, group=group), jax.random.key(0)
    carry = parallel.put_carry(machine.compiled_start(key, algorithm, placed), None)
    text = machine.compiled_advance.lower(None, key, algorithm, scheduler, placed, carry, 3).compile().as_text()
    return text, max(jax.tree.leaves(carry.state.clients), key=lambda x: x.size).shape


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("cohort", [None, 3])
@pytest.mark.parametrize(
    "algorithm",
    [
        jf.APFL(jf.models.mlp(3, (11,)), adaptive=True, local_steps=2, batch_size=4),
        jf.APFL(jf.models.logistic_regression(3), adaptive=True, local_steps=2, batch_size=4),
        jf.Scaffold(jf.models.mlp(3, (11,)), local_steps=2, batch_size=4),
        jf.LocalOnly(jf.models.mlp(3, (11,)), local_steps=2, batch_size=4),
    ],
    ids=["apfl", "apfl-linear", "scaffold", "local"],
)
def test_no_copy_of_the_clients_state(algorithm, cohort, group):
    text, shape = compiled(algorithm, group, cohort)
    shape = re.escape(f"[{','.join(map(str, shape))}]")
    assert re.search(rf"f32{shape}", text), "the state is not found: the test looks for the wrong thing"
    assert not re.findall(rf"= f32{shape}\S* copy\(.*", text)
