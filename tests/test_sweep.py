"""A sweep's lanes are single runs, whatever holds them together."""

import json
import signal
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed import lanes, loads, sweeps
from jaxfed.axes import LogUniform, Uniform, parse
from jaxfed.lanes import Shape
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective
from tests import support
from tests.vertical_support import federation

SIZES = (5, 9, 7, 1, 4)
TRAIN = jf.ClientData.from_list(support.clients(sizes=SIZES))
TEST = jf.ClientData.from_list(support.clients(3, sizes=(2, 3, 4, 1, 3)))
ALPHAS, RATES = [0.0, 0.25, 1.0], [0.05, 0.2]
QUIET = {"test": TEST, "num_rounds": 4, "every": 2, "progress": False}


def apfl(**fields):
    return jf.APFL(support.softmax(), **({"lr": 0.2, "adaptive": True, "local_steps": 3, "batch_size": 3} | fields))


def sweep(axes, algorithm=None, seed=0, **options):
    return jf.sweep(seed, apfl() if algorithm is None else algorithm, TRAIN, axes=axes, **(QUIET | options))


def same(lane, run, rtol=2e-6, atol=1e-6):
    """The lane of a sweep holds what the run recorded."""
    assert set(run.data_vars) == set(lane.data_vars)
    for name in run.data_vars:
        a, b = np.asarray(lane[name], float), np.asarray(run[name], float)
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=name)
    np.testing.assert_array_equal(lane["time"], run["time"])
    assert lane["round"].values.tolist() == run["round"].values.tolist()


def one(seed=0, algorithm=None, train=TRAIN, **options):
    return jf.run(seed, apfl() if algorithm is None else algorithm, train, **(QUIET | options)).dataset


@pytest.fixture(scope="module")
def grid():
    return sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3)


def test_lanes_are_runs(grid):
    assert grid.sizes == {"alpha": 3, "lr": 2, "seed": 3, "round": 3, "client": 5}
    assert json.loads(grid.attrs["sweep"]) == [["alpha", ["alpha"]], ["lr", ["lr"]]]
    for alpha, lr, seed in [(0.0, 0.05, 0), (0.25, 0.2, 2), (1.0, 0.05, 1)]:
        same(grid.sel(alpha=alpha, lr=lr, seed=seed), one(seed, apfl(alpha=alpha, lr=lr)))
    assert grid.train_size.values.tolist() == list(SIZES) and grid.seed.values.tolist() == [0, 1, 2]


def test_lanes_of_very_many_clients_hold_summaries(grid, monkeypatch, tmp_path):
    monkeypatch.setattr(jf.horizontal.summaries, "MOST_CLIENTS", len(SIZES) - 1)
    short = sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, out=tmp_path)
    assert "client" not in short.dims and short.sizes["decile"] == 9 and "train_size" not in short.coords
    same(short.sel(alpha=0.25, lr=0.2, seed=2), one(2, apfl(alpha=0.25, lr=0.2)))
    best = jf.results.best_point(short, "personal_train_loss")
    assert best.values == jf.results.best_point(grid, "personal_train_loss").values
    xr.testing.assert_equal(short, sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, out=tmp_path))
    with pytest.raises(ValueError, match="per_client 'None' .here 'True'."):
        sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, out=tmp_path, per_client=True)
    xr.testing.assert_allclose(grid, sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, per_client=True), rtol=2e-6)


def test_the_order_of_axes_and_the_batch_do_not_matter(grid):
    other = sweep({"lr": RATES, "alpha": ALPHAS}, seeds=3)
    xr.testing.assert_allclose(grid, other.transpose(*grid.dims), rtol=2e-6, atol=1e-6)
    for batch in (1, 2, 4):
        cut = sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, batch=batch)
        xr.testing.assert_allclose(grid, cut, rtol=2e-6, atol=1e-6)
        assert cut.finite.all()


def test_a_sweep_compiles_two_programs_and_values_compile_none(monkeypatch):
    counts, calls = [], []
    play = lanes.compiled_play

    def counted(*args):
        calls.append(args)
        return play(*args)

    counted.lower = play.lower
    monkeypatch.setattr(lanes, "compiled_play", counted)
    before = lanes.compiled_start._cache_size(), play._cache_size()
    for values, rounds in (([0.1, 0.2, 0.3], 4), ([0.4, 0.5, 0.6], 6)):
        sweep({"alpha": values, "lr": [0.1, 0.3, 0.5, 0.7]}, seeds=2, every=2 if rounds == 4 else 3, num_rounds=rounds)
        counts.append((lanes.compiled_start._cache_size() - before[0], play._cache_size() - before[1]))
        assert len(calls) <= 8 * len(counts)  # 24 lanes, 3 records: not one call for each
    assert counts == [(1, 1), (1, 1)]


def test_zipped_axes_and_points(grid):
    zipped = sweep({("alpha", "lr"): [(0.0, 0.05), (1.0, 0.2)]})
    assert zipped.sizes["alpha,lr"] == 2 and zipped.coords["lr"].dims == ("alpha,lr",)
    points = sweep([{"alpha": 0.0, "lr": 0.05}, {"alpha": 1.0, "lr": 0.2}])
    assert points.coords["alpha"].dims == ("point",) and points.coords["alpha"].values.tolist() == [0, 1]
    for ds, dim in ((zipped, "alpha,lr"), (points, "point")):
        for i, (alpha, lr) in enumerate([(0.0, 0.05), (1.0, 0.2)]):
            same(ds.isel({dim: i}).sel(seed=0), grid.sel(alpha=alpha, lr=lr, seed=0), rtol=2e-6)


def test_random_points_are_seeded_and_in_range():
    ranges = {"lr": LogUniform(1e-4, 1e-1), "model.l2": Uniform(0, 2), "alpha": (0.2, 0.4)}
    drawn = sweeps.sample(400, 1, **ranges)
    assert drawn == sweeps.sample(400, 1, **ranges) != sweeps.sample(400, 2, **ranges)
    rates, penalties, alphas = (np.array([p[k] for p in drawn]) for k in ranges)
    assert 1e-4 <= rates.min() and rates.max() <= 1e-1 and abs(np.median(np.log10(rates)) + 2.5) < 0.3
    assert 0 <= penalties.min() and penalties.max() <= 2 and abs(penalties.mean() - 1) < 0.15
    assert 0.2 <= alphas.min() and alphas.max() <= 0.4
    ds = sweep(drawn[:3])
    alone = apfl(lr=rates[1], alpha=alphas[1])
    same(ds.isel(point=1).sel(seed=0), one(0, alone.replace(model=alone.model.replace(l2=penalties[1]))))
    with pytest.raises(ValueError, match="lr: got LogUniform.*wanted low < high, finite, above 0"):
        sweeps.sample(3, 0, lr=LogUniform(0, 1))


def test_seeds_common_or_independent():
    common = sweep({"alpha": [0.3, 0.3]}, seeds=[7, 2])
    assert common.seed.values.tolist() == [7, 2]
    np.testing.assert_array_equal(common.isel(alpha=0).personal_test_loss, common.isel(alpha=1).personal_test_loss)
    own = sweep({"lr": [0.1, 0.2]}, seeds=2, independent=True)
    assert len(set(own.run_seed.values.ravel().tolist())) == 4
    for i, j in ((0, 1), (1, 0)):
        lane = own.isel(lr=i, seed=j)
        same(lane.drop_vars("run_seed"), one(int(lane.run_seed), apfl(lr=[0.1, 0.2][i])))


def test_cohorts_and_delays():
    cohort = jf.horizontal.UniformCohort(5, 2)
    late = jf.horizontal.Stale(cohort, 0, 2)
    algorithm = jf.FedAvg(support.softmax(), lr=0.2, local_steps=3, batch_size=3, max_staleness=2)
    ds = sweep({"scheduler.delay": [0, 1, 2], "lr": RATES}, algorithm, scheduler=late, num_rounds=6)
    for delay in (0, 2):
        alone = one(0, algorithm.replace(lr=0.2), scheduler=late.replace(delay=delay), num_rounds=6)
        same(ds.sel({"scheduler.delay": delay, "lr": 0.2, "seed": 0}), alone)
    slow = sweep({"scheduler.seconds": [1.0, 3.0]}, scheduler=cohort)
    assert slow.time.dims == ("scheduler.seconds", "seed", "round")
    np.testing.assert_array_equal(slow.time[1, 0], [0, 6, 12])


def test_heterogeneity_is_an_axis():
    x, y = support.clients(0, sizes=(40,))[0]
    parts = {str(k): np.array_split(np.random.default_rng(k).permutation(40), (5 + k, 16, 30)) for k in range(3)}
    several = {name: jf.ClientData.from_indices(x, y, part) for name, part in parts.items()}
    first = next(iter(several.values()))
    ds = jf.sweep(0, apfl(), first, axes={"data": several, "lr": RATES}, seeds=2, num_rounds=4, every=2, progress=False)
    assert ds["data"].values.tolist() == list(parts) and ds.train_size.dims == ("data", "client")
    for name, train in several.items():
        alone = jf.run(1, apfl(lr=0.2), train, num_rounds=4, every=2, progress=False).dataset
        same(ds.sel(data=name, lr=0.2, seed=1), alone)
        np.testing.assert_array_equal(ds.train_size.sel(data=name), train.size)
    fixed = dict(axes={"data": several}, num_rounds=2, every=2, progress=False, per_client=False)
    short = jf.sweep(0, apfl(), first, **fixed)
    for name, train in several.items():
        alone = jf.run(0, apfl(), train, num_rounds=2, every=2, progress=False, per_client=False).dataset
        same(short.sel(data=name, seed=0), alone)
    other = jf.ClientData.from_indices(x + 1, y, parts["0"])
    with pytest.raises(ValueError, match="got train rows of another pool, wanted the same x and y"):
        jf.sweep(0, apfl(), first, axes={"data": [first, other]}, num_rounds=1)


PARTY = federation()[0]
OBJECTIVE = Objective("logistic", "l2", 0.05)


@pytest.mark.parametrize("method, form", [(jf.VFB2SGD, "dense"), (jf.VFB2SVRG, "dense"), (jf.VFB2SAGA, "dense"),
                                          (jf.VFB2SAGA, "sparse"), (jf.vertical.LiteralSAGA, "dense")])  # fmt: skip
def test_vertical_lanes_are_runs(method, form):
    party = federation(sparse=True)[0] if form == "sparse" else PARTY
    algorithm, scheduler = method(OBJECTIVE, lr=0.1, batch_size=2), BilevelAsync(party, link=0.3)
    given = {"scheduler": scheduler, "num_rounds": 40, "every": 20, "progress": False}
    rates, penalties = [0.05, 0.1, 0.2], [0.01, 0.1]
    ds = jf.sweep(0, algorithm, party, axes={"lr": rates, "objective.l2": penalties}, seeds=2, **given)
    for lr, l2, seed in ((0.05, 0.1, 0), (0.2, 0.01, 1)):
        alone = jf.run(seed, algorithm.replace(lr=lr, objective=OBJECTIVE.replace(l2=l2)), party, **given).dataset
        same(ds.sel({"lr": lr, "objective.l2": l2, "seed": seed}), alone, rtol=1e-5)


def test_vertical_delays_are_an_axis():
    algorithm, scheduler = jf.VFB2SGD(OBJECTIVE, lr=0.1, batch_size=2), FixedDelay(PARTY, 0, 0, bound=6)
    given = {"num_rounds": 60, "every": 20, "progress": False}
    pairs = [(0, 0), (2, 3), (4, 5)]
    axes = {("scheduler.read", "scheduler.message"): pairs}
    ds = jf.sweep(0, algorithm, PARTY, scheduler=scheduler, axes=axes, seeds=[3, 5], **given)
    for i, (read, message) in enumerate(pairs):
        alone = jf.run(5, algorithm, PARTY, scheduler=scheduler.replace(read=read, message=message), **given).dataset
        same(ds.isel({"scheduler.read,scheduler.message": i}).sel(seed=5), alone, rtol=0, atol=0)  # bit for bit


def test_a_lane_that_diverges_disturbs_no_other():
    with pytest.warns(UserWarning, match="diverged: 2 of 4 lanes are not finite at the end"):
        ds = sweep({"lr": [0.1, 1e30]}, apfl(alpha=0.5, adaptive=False), seeds=2, num_rounds=6)
    assert ds.finite.isel(round=-1).values.tolist() == [[True, True], [False, False]]
    same(ds.sel(lr=0.1, seed=1), one(1, apfl(alpha=0.5, adaptive=False, lr=0.1), num_rounds=6))


def test_own_measures_are_recorded():
    norm = jf.Measure(lambda algorithm, state, data: {"norm": jf.trees.norm(algorithm.server_params(state))})
    ds = sweep({"lr": RATES}, measures=[norm])
    same(ds.sel(lr=0.2, seed=0), one(0, apfl(lr=0.2), measures=[norm]))


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    axes = {"alpha": ALPHAS, "lr": RATES}
    whole = sweep(axes, seeds=3, batch=2)
    played, play = [], sweeps._play

    def interrupted(*args):
        played.append(args[1])
        if len(played) == 4:
            raise KeyboardInterrupt
        return play(*args)

    monkeypatch.setattr(sweeps, "_play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(axes, seeds=3, batch=2, out=tmp_path / "s")
    assert len(list((tmp_path / "s").glob("load-*.nc"))) == 3
    xr.load_dataset(tmp_path / "s" / "load-00001.nc", engine="h5netcdf")  # xarray opens what is there
    ds = sweep(axes, seeds=3, batch=2, out=tmp_path / "s")
    assert len(played) == 3 + 1 + (9 - 3)
    xr.testing.assert_identical(ds.drop_attrs(), whole.drop_attrs())
    assert not list((tmp_path / "s").glob("load-*"))
    xr.testing.assert_identical(sweep(axes, seeds=3, batch=2, out=tmp_path / "s").drop_attrs(), whole.drop_attrs())
    assert len(played) == 10, "a finished sweep is read, not played"
    with pytest.raises(ValueError, match=r"out: got .* which holds a sweep with num_rounds 4 \(here 6\)"):
        sweep(axes, seeds=3, batch=2, out=tmp_path / "s", num_rounds=6)
    with pytest.raises(ValueError, match="axes"):
        sweep({"alpha": ALPHAS, "lr": [0.05, 0.3]}, seeds=3, batch=2, out=tmp_path / "s")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="out: got .*, wanted a folder that is empty"):
        sweep(axes, out=tmp_path / "other")


def test_ctrl_c_returns_the_finished_loads(monkeypatch):
    play, count = sweeps._play, []

    def stop(whole, block, pace, bar, interrupted):
        if len(count) == 2:
            signal.raise_signal(signal.SIGINT)
        count.append(1)
        return play(whole, block, pace, bar, interrupted)

    monkeypatch.setattr(sweeps, "_play", stop)
    with pytest.warns(UserWarning, match="interrupted: 2 of 9 loads are finished; the others are nan"):
        ds = sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, batch=2)
    done = ds.personal_test_loss.notnull().all(("round", "client"))
    assert int(done.sum()) == 4


@pytest.mark.parametrize(
    "axes, message",
    [
        ({"alpah": [0.1]}, "axes: got 'alpah', wanted a traced field of APFL: .*did you mean 'alpha'"),
        ({"local_steps": [1, 2]}, "axes: got 'local_steps', a static field, wanted a traced one; compare"),
        ({"model.net": [1, 2]}, "axes: got 'model.net', a static field"),
        ({"alpha": []}, r"axes\['alpha'\]: got \[\], wanted a list of at least one value"),
        ({"alpha": ["a"]}, r"axes\['alpha'\]: got 'a', wanted numbers"),
        ({"alpha": [0.1, 2.0]}, "alpha: got 2, wanted 0 to 1"),
        ({"lr": [0.1, float("nan")]}, "lr: got nan"),
        ({"alpha": [0.1, [0.2, 0.3]]}, r"axes\['alpha'\]: got values of several shapes"),
        ({("alpha", "lr"): [(0.1, 0.2), (0.3,)]}, r"\[1\]: got 1 values, wanted 2"),
        ({"lr": [0.1], ("alpha", "lr"): [(0.1, 0.2)]}, "axes: got 'lr' twice, wanted each field once"),
        ([{"lr": 0.1}, {"alpha": 0.1}], "axes: got 2 points of fields"),
        ([], "axes: got 0 points"),
        ("alpha", "axes: got str, wanted a dict, path to values, or a list of points"),
        ({"scheduler.num_clients": [1]}, "axes: got 'scheduler.num_clients', a static field"),
        ({"scheduler": [1]}, r"axes\['scheduler'\]: got no field"),
        ({"lr": {"a": 0.1}}, r"axes\['lr'\]: got a dict"),
        ({"data": [None]}, r'axes\["data"\]\[0\]: got None, wanted ClientData'),
    ],
)
def test_bad_axes_are_one_clear_line(axes, message):
    with pytest.raises(ValueError, match=message):
        sweep(axes)


def test_other_bad_input():
    for options, message in (
        ({"seeds": 0}, "seeds: got 0"),
        ({"seeds": [1, 1]}, "seeds: got"),
        ({"batch": 0}, "batch: got 0, wanted a whole number of at least 1"),
        ({"memory": 1e-9}, "memory: got 9.31e-10 GiB, wanted at least|memory: got .* GiB, wanted at least"),
        ({"independent": 1}, "independent: got 1, wanted True or False"),
        ({"num_rounds": 0}, "num_rounds: got 0"),
        ({"mesh": jf.parallel.Mesh(np.array(jax.devices()[:1]), ("x",))}, "mesh: got the axes"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep({"lr": RATES}, **options)
    with pytest.raises(ValueError, match="BilevelAsync lays out its schedule on the host"):
        algorithm = jf.VFB2SGD(OBJECTIVE, lr=0.1)
        axes = {"scheduler.link": [0.1, 2.0]}
        jf.sweep(0, algorithm, PARTY, scheduler=BilevelAsync(PARTY), axes=axes, num_rounds=40, progress=False)


def test_an_estimate_says_what_is_needed():
    found = sweeps.estimate(0, apfl(), TRAIN, axes={"alpha": ALPHAS, "lr": RATES}, seeds=3, **QUIET)
    assert (found.lanes, found.batch, found.loads) == (18, 6, 3)
    assert 0 < found.bytes < 2**24 and 0 < found.seconds < 60
    assert str(found).startswith("18 lanes, 6 in a batch, in 3 loads; ")
    more = sweeps.estimate(0, apfl(), TRAIN, axes={"alpha": ALPHAS, "lr": RATES}, seeds=30, measure_time=False, **QUIET)
    assert (
        (more.lanes, more.batch, more.loads) == (180, 6, 10) and more.bytes > 1.5 * found.bytes and more.seconds is None
    )
    with pytest.raises(TypeError, match="alphas"):
        sweeps.estimate(0, apfl(), TRAIN, alphas=[0.1], axes={"lr": RATES}, num_rounds=1)


def test_memory_cuts_batches(grid):
    axes, given = {"alpha": ALPHAS, "lr": RATES}, {"seeds": 3, **QUIET}
    alone = sweeps.estimate(0, apfl(), TRAIN, axes=axes, batch=3, measure_time=False, **given)
    cut = sweeps.estimate(0, apfl(), TRAIN, axes=axes, memory=alone.bytes / 2**30, measure_time=False, **given)
    assert cut.batch < 6 and cut.bytes <= alone.bytes and cut.loads > 1
    ds = sweep(axes, seeds=3, memory=alone.bytes / 2**30)
    xr.testing.assert_allclose(grid, ds, rtol=2e-6, atol=1e-6)


def test_out_of_memory_makes_smaller_batches(grid, monkeypatch):
    """As on an accelerator: the device refuses batches of more than two lanes."""
    play = lanes.compiled_play

    def refuse(mesh, shape, *rest):
        if shape.lanes * shape.batches > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")
        return play(mesh, shape, *rest)

    refuse.lower = play.lower
    monkeypatch.setattr(lanes, "compiled_play", refuse)
    with pytest.warns(UserWarning, match="out of memory with 6 lanes in a batch .*; going on with 3 lanes"):
        ds = sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3)
    xr.testing.assert_allclose(grid, ds, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("points, seeds, most, devices", [(7, 3, 4, 1), (2, 9, 8, 2), (1, 1, 5, 2), (11, 20, 64, 3)])
def test_blocks_cover_every_lane(points, seeds, most, devices):
    class Fake:
        shape = {"sweep": devices}

    shape = loads.shape_of("vmap", most, points, seeds, Fake, False, None)
    assert shape.lanes <= most
    for batches in (1, 3):
        found = set()
        for block in loads.blocks(shape._replace(batches=batches), points, seeds):
            assert block.points.shape == (batches * devices, shape.points)
            found |= {(p, s) for ps, ss in zip(block.points, block.seeds, strict=True) for p in ps for s in ss}
        assert found == {(p, s) for p in range(points) for s in range(seeds)}


@pytest.mark.parametrize("rounds, most", [(1, 32), (5, 2), (1000, 3), (7, 32)])
def test_pieces_play_every_round_once(rounds, most):
    lengths = [0, 4, 4, 10, 3]
    played, current, rest = [], 0, lengths
    while rest:
        windows, rest = loads.pieces(rest, rounds, most)
        assert 1 <= len(windows) <= most
        for length in windows:
            current += abs(length)
            if length >= 0:
                played.append(current)
                current = 0
    assert played == lengths


def test_axes_parse_to_dims():
    assert [(a.dim, a.paths) for a in parse({"lr": [1], ("a", "b"): [(1, 2)]})] == [
        ("lr", ("lr",)),
        ("a,b", ("a", "b")),
    ]
    assert Shape("vmap", 3, 2, 5).lanes == 6


KILLED = """
import sys, jaxfed as jf
from tests import conftest, test_sweep as t
t.sweep({"alpha": t.ALPHAS, "lr": t.RATES}, seeds=3, batch=1, num_rounds=4, out=sys.argv[1])
"""


def test_killed_nothing_finished_is_lost(tmp_path, grid):
    """kill -9 while it runs, then the same call again."""
    folder = tmp_path / "s"
    words = [sys.executable, "-c", KILLED, str(folder)]
    process = subprocess.Popen(words)
    while process.poll() is None and len(list(folder.glob("load-*.nc"))) < 3:
        pass
    process.kill()
    process.wait()
    held = {path.name: path.read_bytes() for path in folder.glob("load-*.nc")}
    assert len(held) >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = sweep({"alpha": ALPHAS, "lr": RATES}, seeds=3, batch=1, num_rounds=4, out=folder)
    xr.testing.assert_allclose(grid.drop_attrs(), ds.drop_attrs(), rtol=2e-6, atol=1e-6)
