"""The oracles of SCAFFOLD, FedAvg and the optimizers against numbers worked out by hand in the comments."""

import numpy as np
import pytest

from tests.reference import fedavg, local, quadratic, scaffold, server
from tests.reference.models import Softmax
from tests.reference.problems import SOFTMAX_SHAPES, assert_close, draw, federation, scalar

# SCAFFOLD by hand: f_1 = w^2 / 2, f_2 = (w - 3)^2, w = 1, lr = 1/4, two local steps each, server_lr 1.
# Round 1, c = c_1 = c_2 = 0.
#   y_1: 1 - 1/4 * 1 = 0.75, 0.75 - 1/4 * 0.75 = 0.5625. y_2: 1 + 1/4 * 4 = 2, 2 + 1/4 * 2 = 2.5.
#   c_1 = (1 - 0.5625) / (2/4) = 0.875, c_2 = (1 - 2.5) / (2/4) = -3, c = (0.875 - 3) / 2, w = 1 + (-0.4375 + 1.5) / 2.
# Round 2, c - c_1 = -1.9375, c - c_2 = 1.9375.
#   y_1: 1.53125 - (1.53125 - 1.9375) / 4 = 1.6328125, 1.6328125 - (1.6328125 - 1.9375) / 4 = 1.708984375.
#   y_2: 1.53125 - (-2.9375 + 1.9375) / 4 = 1.78125, 1.78125 - (-2.4375 + 1.9375) / 4 = 1.90625.
#   c_1 = 0.875 + 1.0625 + (1.53125 - 1.708984375) * 2 = 1.58203125,
#   c_2 = -3 + 1.0625 + (1.53125 - 1.90625) * 2 = -2.6875,
#   c = -1.0625 + (0.70703125 + 0.3125) / 2 = -0.552734375, w = 1.53125 + (0.177734375 + 0.375) / 2 = 1.8076171875.
TWO = quadratic.rows([([[1.0]], [0.0]), ([[2.0]], [3.0])])


def run_scaffold(rounds, clients=TWO, cohort=(0, 1), batches=None, **options):
    w, batches = scalar(1), batches or {0: [[0], [0]], 1: [[0], [0]]}
    c, controls = scaffold.init_controls(w, len(clients))
    for _ in range(rounds):
        w, c, controls = scaffold.scaffold_round(
            quadratic.Quadratic(), w, c, controls, clients, cohort, batches, 0.25, **options
        )
    return [float(t["w"][0]) for t in (w, c, *controls)]


def test_scaffold_by_hand():
    assert run_scaffold(1) == [1.53125, -1.0625, 0.875, -3]
    assert run_scaffold(2) == [1.8076171875, -0.552734375, 1.58203125, -2.6875]
    # client 2 takes one step: y_2 = 2, c_2 = (1 - 2) / (1/4); w = 1 + (-0.4375 + 1) / 2, c = (0.875 - 4) / 2
    assert run_scaffold(1, batches={0: [[0], [0]], 1: [[0]]}) == [1.28125, -1.5625, 0.875, -4]
    # only client 1 of two: w = y_1, but c moves by |S|/N = 1/2 of 0.875
    assert run_scaffold(1, cohort=[0]) == [0.5625, 0.4375, 0.875, 0]
    # option 1: c_1 = f_1'(1) = 1, c_2 = f_2'(1) = -4; half the server step
    assert run_scaffold(1, option=1, server_lr=0.5) == [1.265625, -1.5, 1, -4]
    # an empty third client changes nothing
    empty = (np.zeros((0, 1, 1)), np.zeros((0, 1)))
    assert run_scaffold(2, clients=[*TWO, empty], cohort=[0, 1, 2]) == [*run_scaffold(2), 0]
    with pytest.raises(ValueError, match=r"batches\[1\]: got 0 local steps"):
        run_scaffold(1, batches={0: [[0]], 1: []})


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_with_one_client_is_sgd_and_stays_at_the_optimum(option):
    rng, clients, _ = federation()
    model, clients, w = Softmax(0.1), clients[1:2], draw(rng, SOFTMAX_SHAPES)
    y, (c, controls) = w, scaffold.init_controls(w, 1)
    for _ in range(3):
        batches = [rng.integers(0, 9, 4) for _ in range(3)]
        y = fedavg.local_sgd(model, y, *clients[0], batches, 0.2)
        w, c, controls = scaffold.scaffold_round(model, w, c, controls, clients, [0], {0: batches}, 0.2, option=option)
        assert_close(w, y, atol=1e-12)
    # At the minimiser 2 of f_1 + f_2, with c_i = f_i'(2), no client moves, where FedAvg drifts to (1.125 + 2.75) / 2.
    optimum, two_steps = scalar(2), {0: [[0], [0]], 1: [[0], [0]]}
    stay, _, _ = scaffold.scaffold_round(
        quadratic.Quadratic(), optimum, scalar(0), [scalar(2), scalar(-2)], TWO, [0, 1], two_steps, 0.25, option=option
    )
    assert stay["w"] == 2
    assert fedavg.fedavg_round(quadratic.Quadratic(), optimum, TWO, [0, 1], two_steps, 0.25)["w"] == 1.9375


def test_fedavg_by_hand():
    # From w = 0 with f = (w - b)^2 / 2 and lr 1/2 one step reaches mean(b) / 2: client 0 (one row, b = 4) 2,
    # client 1 (three rows, b = 0, 8, 16) 4. By examples 2/4 + 4 * 3/4 = 3.5, uniform 3; client 2 has no rows.
    model = quadratic.Quadratic()
    clients = [(np.ones((n, 1, 1)), np.array(b).reshape(n, 1)) for n, b in ((1, [4.0]), (3, [0, 8.0, 16]), (0, []))]
    batches = {0: [[0]], 1: [[0, 1, 2]]}
    for cohort, options, expected in (
        ([0, 1, 2], {}, 3.5),
        ([0, 1, 2], {"weights": "uniform"}, 3),
        ([0, 1], {"server_lr": 0.5}, 1.75),
        ([1], {}, 4),
        ([2], {}, 0),
    ):
        assert fedavg.fedavg_round(model, scalar(0), clients, cohort, batches, 0.5, **options)["w"] == expected
    with pytest.raises(ValueError, match="weights: got 'rows', wanted one of"):
        fedavg.fedavg_round(model, scalar(0), clients, [0], batches, 0.5, weights="rows")
    tuned = local.fine_tune(model, scalar(0), clients, [0, 1, 2], batches, 0.5)
    assert [float(tuned[i]["w"][0]) for i in range(3)] == [2, 4, 0]


def test_local_optimizers():
    # Gradients 1, 1 - 1/2: momentum 1/2 on f = w^2 / 2 from w = 1, lr 1/2: w = 0.5, trace = 0.5 + 0.5, w = 0.
    model, (x, y) = quadratic.Quadratic(), TWO[0]
    assert fedavg.local_sgd(model, scalar(1), x, y, [[0], [0]], 0.5, fedavg.sgd_momentum(0.5))["w"] == 0
    # Bias correction makes Adam's step under a constant gradient lr sign(g), from the first step on.
    init, update = fedavg.adam(eps=0.0)
    state = init(scalar(0))
    for _ in range(3):
        direction, state = update(scalar(-7), state)
        assert direction["w"] == pytest.approx(-1, abs=1e-12)
    # Gradients 3, then 4, beta1 = 1/2, beta2 = 3/4: m = 2.75, v = 27/16 + 4 = 91/16, corrected by 3/4 and 7/16.
    init, update = fedavg.adam(0.5, 0.75, eps=0.5)
    _, state = update(scalar(3), init(scalar(0)))
    direction, _ = update(scalar(4), state)
    assert direction["w"] == pytest.approx((11 / 3) / (np.sqrt(13) + 0.5), abs=1e-14)


def test_server_optimizers():
    # Deltas 1, then 3, from w = 0. FedAvgM, beta 1/2, lr 2: m = 1, 3.5; w = 2, 9.
    # beta1 = 1/2, beta2 = 3/4, tau = 2: m = 0.5, 1.75. Adam: v = 3 + 0.25 = 3.25, 2.4375 + 2.25 = 4.6875.
    # Yogi: v = 4 - 0.25 = 3.75, 3.75 + 2.25 = 6.
    adaptive = {"lr": 2.0, "beta1": 0.5, "beta2": 0.75, "tau": 2.0}
    for (init, update), expected in (
        (server.fedavgm(2.0, 0.5), (2, 9)),
        (server.fedadam(**adaptive), (1 / (np.sqrt(3.25) + 2), 3.5 / (np.sqrt(4.6875) + 2))),
        (server.fedyogi(**adaptive), (1 / (np.sqrt(3.75) + 2), 3.5 / (np.sqrt(6) + 2))),
    ):
        w, state = update(scalar(0), init(scalar(0)), scalar(1))
        assert w["w"] == pytest.approx(expected[0], abs=1e-14)
        after, _ = update(w, state, scalar(3))
        total = expected[1] if expected == (2, 9) else expected[0] + expected[1]
        assert after["w"] == pytest.approx(total, abs=1e-14)
    # Through a round: delta = (1.125 + 2.75) / 2 - 2, as in the SCAFFOLD test; an empty cohort moves nothing.
    args = ({0: [[0], [0]], 1: [[0], [0]]}, 0.25, server.fedavgm(2.0, 0.5))
    w, m = server.server_round(quadratic.Quadratic(), scalar(2), scalar(4), TWO, [0, 1], *args)
    assert m["w"] == 1.9375 and w["w"] == 5.875
    w, m = server.server_round(quadratic.Quadratic(), scalar(2), scalar(4), TWO, [], *args)
    assert m["w"] == 4 and w["w"] == 2
