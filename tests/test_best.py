"""Best settings of a sweep against NumPy: never by test rows unasked, never of diverged lanes; frames and figures."""

import json

import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed import plots, results
from jaxfed.commands import sweep_report
from jaxfed.commands.figure import sweep_figure

ALPHA, LR, SEEDS, ROUNDS, CLIENTS = [0.0, 0.5, 1.0], [0.01, 0.1], [7, 8], [0, 5], 4
DIMS, SHAPE = ("alpha", "lr", "seed", "round", "client"), (3, 2, 2, 2, 4)


def sample(**axes):
    """A sweep of random numbers; client 3 has no test rows. `axes`: dimension to paths in place of alpha and lr."""
    rng = np.random.default_rng(0)
    names = [f"{model}_{part}_{kind}" for model in ("personal", "server") for part in ("train", "validation", "test")
             for kind in ("accuracy", "loss")]  # fmt: skip
    variables = {name: (DIMS, rng.random(SHAPE).astype(np.float32)) for name in names}
    for name in names:
        if "_test_" in name:
            variables[name][1][..., 3] = np.nan
    variables |= {"finite": (DIMS[:4], np.ones(SHAPE[:4], bool)), "drift": (DIMS[:4], rng.random(SHAPE[:4]))}
    coords = {"alpha": ALPHA, "lr": LR, "seed": SEEDS, "round": ROUNDS, "time": ("round", [0.0, 5.0]),
              "client": range(CLIENTS), "test_size": ("client", [2, 5, 1, 0])}  # fmt: skip
    named = list((axes or {"alpha": ["alpha"], "lr": ["lr"]}).items())
    return xr.Dataset(variables, coords, {"sweep": json.dumps(named)})


def vertical(path):
    rng = np.random.default_rng(1)
    dims, shape = ("x", "seed", "round"), (3, 2, 2)
    names = ("objective", "train_accuracy", "train_auc", "test_accuracy", "test_auc", "dominated_updates")
    variables = {name: (dims, rng.random(shape)) for name in names} | {"finite": (dims, np.ones(shape, bool))}
    coords = {"x": ("x", [0.1, 0.2, 0.3]), "seed": SEEDS, "round": ROUNDS, "time": (dims, rng.random(shape))}
    ds = xr.Dataset(variables, coords, {"sweep": json.dumps([[path, [path]]])})
    return ds.rename(x=path)


def lanes(ds, name):
    """[alpha, lr, seed] at the last record, the mean over clients with rows, by NumPy."""
    return np.nanmean(ds[name].values[..., -1, :].astype(float), axis=-1)


def test_the_best_is_the_best_mean_over_seeds_of_validation_rows():
    ds = sample()
    means = lanes(ds, "personal_validation_accuracy").mean(-1)
    i, j = np.unravel_index(means.argmax(), means.shape)
    best = results.best_point(ds)
    assert best == ({"alpha": i, "lr": j}, {"alpha": ALPHA[i], "lr": LR[j]}, "personal_validation_accuracy", best.score)
    assert best.score == pytest.approx(means.max())
    losses = lanes(ds, "server_train_loss").mean(-1)
    assert results.best_point(ds, "server_train_loss").index == dict(zip(("alpha", "lr"), np.unravel_index(
        losses.argmin(), losses.shape), strict=True))  # fmt: skip
    first = ds["personal_validation_accuracy"].values[..., 0, :].mean((-1, -2))
    assert results.best_point(ds, round=0).score == pytest.approx(first.max())


def test_without_validation_rows_training_rows_choose_and_it_is_said():
    ds = sample()
    names = [name for name in ds if "validation" in name]
    assert results.criterion(ds.drop_vars(names)) == "personal_train_accuracy"
    table = sweep_report.table(ds.drop_vars(names))
    assert "best settings by training accuracy of the personal models (greatest first)" in table
    assert "chosen on TRAINING rows" in table and "TEST" not in table
    assert "TRAINING" not in sweep_report.table(ds)
    losses = [name for name in ds if str(name).endswith("accuracy")]
    assert results.criterion(ds.drop_vars(losses)) == "personal_validation_loss"


def test_test_rows_choose_only_where_they_are_named():
    ds, name = sample(), "personal_test_accuracy"
    for choose in (results.best_point, results.best_table):
        with pytest.raises(ValueError, match="by: got 'personal_test_accuracy', wanted a quantity of validation"):
            choose(ds, name)
    means = lanes(ds, name).mean(-1)
    assert results.best_point(ds, name, allow_test=True).score == pytest.approx(means.max())
    only = ds[[name, "finite"]]
    with pytest.raises(ValueError, match="none of personal_validation_accuracy"):
        results.best_point(only)
    assert "CHOSEN ON TEST ROWS, as asked for" in sweep_report.table(ds, name)
    with pytest.raises(ValueError, match="by: got 'test_auc', wanted a quantity of validation"):
        results.best_point(vertical("lr"), "test_auc")


def test_lanes_that_diverged_are_never_best_and_are_counted():
    ds = sample()
    means = lanes(ds, "personal_validation_accuracy").mean(-1)
    order = np.argsort(-means, axis=None)
    i, j = np.unravel_index(order[0], means.shape)
    ds["finite"][i, j, 1, -1] = False  # its accuracy still looks like a number, and is the best
    best = results.best_point(ds)
    assert best.score == pytest.approx(means.ravel()[order[1]])
    frame = results.best_table(ds)
    assert frame["diverged"].tolist() == [0] * 5 + [1] and frame["seeds"].tolist() == [2] * 6
    assert np.isnan(frame["personal_validation_accuracy"].iloc[-1]) and np.isnan(
        frame["personal_test_accuracy"].iloc[-1]
    )
    assert frame[["alpha", "lr"]].iloc[-1].tolist() == [ALPHA[i], LR[j]]
    shown = sweep_report.table(ds)
    assert "diverged: 1 of 12 runs; settings with one (1)" in shown and shown.splitlines()[-1].endswith("1 of 2")
    ds["finite"][..., -1] = False
    with pytest.raises(ValueError, match="every one diverged"):
        results.best_point(ds)
    assert "diverged: 12 of 12 runs" in sweep_report.table(ds)


def test_lanes_of_a_sweep_that_was_ended_early_are_told_from_those_that_diverged():
    ds = sample()
    lost = xr.DataArray([[[False, False], [False, True]]] + 2 * [[[False, False]] * 2], dims=DIMS[:3])
    ds = ds.where(~lost)  # all is nan, `finite` too
    ds["finite"][2, 1, 0, -1] = 0.0
    frame = results.best_table(ds).set_index(["alpha", "lr"])
    assert frame["unfinished"].to_dict() == {(a, r): int((a, r) == (0.0, 0.1)) for a in ALPHA for r in LR}
    assert frame["diverged"].to_dict() == {(a, r): int((a, r) == (1.0, 0.1)) for a in ALPHA for r in LR}
    shown = sweep_report.table(ds)
    assert "NOT FINISHED: 1 of 12 runs" in shown and "diverged: 1 of 12 runs" in shown


def test_the_table_has_test_figures_and_the_spread_over_seeds_beside():
    ds = sample()
    frame = results.best_table(ds, top=3)
    assert len(frame) == 3 and frame["personal_validation_accuracy"].is_monotonic_decreasing
    for _, row in frame.iterrows():
        i, j = ALPHA.index(row["alpha"]), LR.index(row["lr"])
        for name in ("personal_validation_accuracy", "personal_test_accuracy", "server_test_accuracy"):
            own = lanes(ds, name)[i, j]
            assert row[name] == pytest.approx(own.mean()) and row[f"{name}_std"] == pytest.approx(own.std(ddof=1))
    text = sweep_report.table(ds, top=3).splitlines()
    row = frame.iloc[0]
    wanted = f"{row['personal_test_accuracy']:.4f} +- {row['personal_test_accuracy_std']:.4f}"
    assert wanted in text[2] and "the best 3 of 6" in text
    assert np.isnan(results.best_table(ds.isel(seed=[0]))["personal_test_accuracy_std"]).all()
    with pytest.raises(ValueError, match="top: got 0"):
        results.best_table(ds, top=0)


def test_a_vertical_sweep_is_compared_by_the_objective_unless_that_changes():
    ds = vertical("lr")
    best = results.best_point(ds)
    assert best.by == "objective" and best.score == pytest.approx(ds["objective"].values[..., -1].mean(-1).min())
    ds = vertical("objective.l2")
    assert results.best_point(ds).by == "train_accuracy"
    assert "l2 is varied, and is part of this quantity" in sweep_report.table(ds, "objective")
    assert sweep_report.table(ds).splitlines()[2].split()[0] == "l2"


def test_zipped_axes_keep_their_values_together():
    ds = sample(point=["alpha", "lr"], other=["model.l2"]).rename(alpha="point", lr="other")
    values = {"alpha": ("point", [0.3, 0.1, 0.2]), "lr": ("point", [1.0, 3.0, 2.0]), "model.l2": ("other", [0.0, 0.5])}
    ds = ds.drop_vars(["point", "other"]).assign_coords(values)
    means = lanes(ds, "personal_validation_accuracy").mean(-1)
    i, j = np.unravel_index(means.argmax(), means.shape)
    best = results.best_point(ds)
    assert best.values == {"alpha": [0.3, 0.1, 0.2][i], "lr": [1.0, 3.0, 2.0][i], "model.l2": [0.0, 0.5][j]}
    assert ds.isel(best.index)["alpha"] == best.values["alpha"]
    frame = results.to_frame(ds)
    assert list(frame)[:5] == ["alpha", "lr", "model.l2", "seed", "round"] and "point" not in frame
    assert sorted(set(zip(frame["alpha"], frame["lr"], strict=True))) == [(0.1, 3.0), (0.2, 2.0), (0.3, 1.0)]
    ax = plots.along(ds.isel(other=[0]), "personal_test_accuracy", "point")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.3, 1", "0.1, 3", "0.2, 2"]


def test_seeds_alone_are_a_sweep_of_one_point():
    ds = sample().isel(alpha=1, lr=0, drop=True).assign_attrs(sweep="[]")
    best = results.best_point(ds)
    own = ds["personal_validation_accuracy"].values[:, -1].mean()
    assert best.index == {} == best.values and best.score == pytest.approx(own)
    rows = sweep_report.table(ds).splitlines()
    assert rows[0].endswith("at round 5; means over clients and 2 seeds, +- one standard deviation") and len(rows) == 3
    assert list(results.to_frame(ds))[:2] == ["seed", "round"] and len(results.to_frame(ds)) == 4
    assert [len(ax.lines) for ax in sweep_figure(ds).axes] == [1, 1]


def test_an_axis_of_data_sets_has_its_own_clients_without_rows():
    ds = sample(data=["data"], lr=["lr"]).rename(alpha="data").assign_coords(data=["a", "b", "c"])
    size = np.array([[2, 5, 1, 0], [0, 5, 1, 3], [1, 1, 1, 1]])
    ds = ds.assign_coords(test_size=(("data", "client"), size))
    values = np.random.default_rng(2).random(SHAPE)
    ds["personal_test_accuracy"] = (("data", *DIMS[1:]), np.where(size[:, None, None, None] > 0, values, np.nan))
    found = results.scalars(ds)["personal_test_accuracy_mean_over_clients"]
    np.testing.assert_allclose(found, [values[k][..., size[k] > 0].mean(-1) for k in range(3)])


def test_the_frame_has_a_row_for_each_lane_and_record():
    ds = sample()
    frame = results.to_frame(ds)
    assert len(frame) == 3 * 2 * 2 * 2 and list(frame)[:5] == ["alpha", "lr", "seed", "round", "time"]
    one = frame.query("alpha == 0.5 and lr == 0.1 and seed == 8 and round == 5").iloc[0]
    lane = ds.sel(alpha=0.5, lr=0.1, seed=8, round=5)
    assert one["personal_test_loss_mean_over_clients"] == pytest.approx(float(lane["personal_test_loss"][:3].mean()))
    assert one["drift"] == float(lane["drift"]) and one["time"] == 5 and "client" not in frame
    run = ds.isel(alpha=0, lr=0, seed=0, drop=True).drop_attrs()
    assert list(results.to_frame(run))[:2] == ["round", "time"] and len(results.to_frame(run)) == 2
    pair = run.expand_dims(algorithm=["a", "b"], seed=[3])
    assert list(results.to_frame(pair))[:3] == ["algorithm", "seed", "round"]


def test_means_are_those_of_the_results_and_a_lost_client_makes_them_nan():
    ds = sample()
    found = results.scalars(ds)
    for name in ("personal_test_accuracy", "server_train_loss"):
        np.testing.assert_allclose(found[f"{name}_mean_over_clients"], results.mean_over_clients(ds[name]), rtol=1e-6)
    ds["personal_test_accuracy"][0, 0, 0, 0, 1] = np.nan  # a client with rows
    assert results.scalars(ds)["personal_test_accuracy_mean_over_clients"].isnull().sum() == 1


def test_figures_show_the_means_mark_the_best_and_leave_out_what_diverged():
    ds = sample()
    ds["finite"][0, 0, 1, -1] = False
    left, right = sweep_figure(ds).axes[:2]
    means = lanes(ds, "personal_validation_accuracy").mean(-1)
    means[0, 0] = np.nan
    np.testing.assert_allclose(left.images[0].get_array(), means)
    j, i = np.unravel_index(np.nanargmax(means), means.shape)
    (frame,) = left.patches
    assert (frame.get_x() + 0.47, frame.get_y() + 0.47) == pytest.approx((i, j))
    assert (left.get_xlabel(), left.get_ylabel()) == ("lr", "alpha") and "nan" in [t.get_text() for t in left.texts]
    test = lanes(ds, "personal_test_accuracy").mean(-1)
    test[0, 0] = np.nan
    lines = [line.get_ydata() for line in right.lines]
    np.testing.assert_allclose(np.array(lines), test)
    assert right.get_xscale() == "log" and sorted(t.get_text() for t in right.texts) == [
        "alpha 0",
        "alpha 0.5",
        "alpha 1",
    ]
    one = ds.isel(lr=[1])
    left, right = sweep_figure(one).axes
    assert len(left.lines) == 2 and len(right.lines) == 3 and left.get_xlabel() == "alpha"
    assert len(sweep_figure(one.isel(alpha=[1])).axes[0].lines) == 1
    with pytest.raises(ValueError, match="further axes lr"):
        plots.along(ds, "personal_test_accuracy", "alpha")
    with pytest.raises(ValueError, match="x: got 'beta', wanted one of 'alpha', 'lr'"):
        plots.along(ds, "personal_test_accuracy", "beta")


def test_other_datasets_and_unknown_quantities_are_refused():
    ds = sample()
    with pytest.raises(ValueError, match="ds: got the dims .*, wanted the Dataset of a sweep"):
        results.best_point(ds.drop_attrs())
    with pytest.raises(ValueError, match="did you mean 'personal_train_loss'"):
        results.best_point(ds, "personal_trian_loss")
    with pytest.raises(ValueError, match="by: got 'drift', wanted a quantity whose name ends in"):
        results.best_point(ds, "drift")
    assert jf.results.best_point is results.best_point
