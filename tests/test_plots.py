"""Figures show the Dataset's own numbers, name what they show, and keep names apart; each also works on one run."""

import matplotlib.figure
import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed import drawing, plots

ROUNDS, CLIENTS = np.array([0, 2, 4, 5]), 30


@pytest.fixture
def ds():
    rng = np.random.default_rng(0)
    dims, shape = ("algorithm", "seed", "round", "client"), (3, 2, 4, CLIENTS)
    names = [f"{model}_{part}_{kind}" for model in ("server", "personal") for part in ("train", "test")
             for kind in ("loss", "accuracy")]  # fmt: skip
    variables = {name: (dims, rng.random(shape).astype(np.float32)) for name in names}
    alpha = rng.random(shape)
    alpha[0] = np.nan  # FedAvg
    alpha[2] = 0.25
    variables |= {"mixing_weight": (dims, alpha), "drift": (dims[:3], rng.random(shape[:3]))}
    coords = {"algorithm": ["FedAvg", "APFL", "APFL 0.25"], "seed": [3, 4], "round": ROUNDS}
    return xr.Dataset(variables, coords | {"time": ("round", ROUNDS * 9.0)})


def texts(ax):
    return [text.get_text() for text in ax.texts]


def boxes(ax):
    """Return the boxes of all labels at lines' ends, as drawn."""
    ax.figure.draw_without_rendering()
    return [matplotlib.text.Text.get_window_extent(text) for text in ax.texts]


def test_curves_are_means_over_clients_and_seeds_with_bands_over_seeds(ds):
    ax = plots.curves(ds, "personal_test_accuracy")
    of_seed = ds["personal_test_accuracy"].mean("client")
    assert len(ax.lines) == 3 and len(ax.collections) == 3
    for line, band, name in zip(ax.lines, ax.collections, ds["algorithm"].values, strict=True):
        one = of_seed.sel(algorithm=name)
        np.testing.assert_array_equal(line.get_xdata(), ROUNDS)
        np.testing.assert_allclose(line.get_ydata(), one.mean("seed"))
        low, high = one.mean("seed") - one.std("seed"), one.mean("seed") + one.std("seed")
        at_end = band.get_paths()[0].vertices[:, 1][band.get_paths()[0].vertices[:, 0] == ROUNDS[-1]]
        np.testing.assert_allclose([at_end.min(), at_end.max()], [low[-1], high[-1]], rtol=1e-6)
    assert ax.get_xlabel() == "communication round"
    assert ax.get_ylabel() == "test accuracy of the personal models,\nmean over clients"
    assert sorted(texts(ax)) == sorted(ds["algorithm"].values.tolist())


def test_curves_of_two_models_against_time_and_of_what_has_no_clients(ds):
    ax = plots.curves(ds, ["personal_test_loss", "server_test_loss"], x="time", band=None)
    assert len(ax.lines) == 6 and not ax.collections
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), ROUNDS * 9)
    assert {line.get_linestyle() for line in ax.lines} == {"-", "--"}
    assert ax.get_xlabel() == "simulated time (s)"
    said = [text.get_text() for text in ax.get_legend().get_texts()]
    assert said == ["test loss of the personal models", "test loss of the server's model"]
    drift = plots.curves(ds, "drift", band="range")
    np.testing.assert_allclose(drift.lines[1].get_ydata(), ds["drift"].sel(algorithm="APFL").mean("seed"))


def test_one_run_is_one_line_without_a_name(ds):
    one = ds.isel(algorithm=1, seed=0, drop=True)
    ax = plots.curves(one)
    assert len(ax.lines) == 1 and not ax.texts and not ax.collections
    np.testing.assert_allclose(ax.lines[0].get_ydata(), one["personal_test_accuracy"].mean("client"))
    assert len(plots.mixing_weights(one).lines) == 1
    assert plots.spread(one).get_xlabel() == "test accuracy of the personal models"


def test_mixing_weights_are_mean_and_deciles_of_those_that_have_them(ds):
    ax = plots.mixing_weights(ds)
    assert sorted(texts(ax)) == ["APFL", "APFL 0.25"]
    alpha = ds["mixing_weight"].sel(algorithm="APFL")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), alpha.mean(["seed", "client"]))
    corners = ax.collections[0].get_paths()[0].vertices
    pooled = alpha.isel(round=0).values.ravel()
    at_start = corners[corners[:, 0] == 0][:, 1]
    np.testing.assert_allclose([at_start.min(), at_start.max()], np.quantile(pooled, [0.1, 0.9]))
    assert ax.get_ylabel() == "mixing weight alpha"
    with pytest.raises(ValueError, match="no mixing weights"):
        plots.mixing_weights(ds.sel(algorithm=["FedAvg"]))


def test_spread_shows_every_client_the_mean_and_the_deciles(ds):
    ax = plots.spread(ds, "server_test_loss", round=1)
    assert [label.get_text() for label in ax.get_yticklabels()] == ds["algorithm"].values.tolist()
    for row, name in enumerate(ds["algorithm"].values):
        values = ds["server_test_loss"].sel(algorithm=name).isel(round=1).values.ravel()
        dots, diamond = ax.collections[2 * row : 2 * row + 2]
        np.testing.assert_allclose(dots.get_offsets()[:, 0], values)
        assert (abs(dots.get_offsets()[:, 1] - row) < 0.5).all()
        np.testing.assert_allclose(diamond.get_offsets()[0], [values.mean(), row], rtol=1e-6)
        np.testing.assert_allclose(ax.lines[row].get_xdata(), np.quantile(values, [0.1, 0.9]))


def test_names_at_the_ends_of_lines_do_not_overlap():
    close = 0.9 + 0.001 * np.arange(8)[:, None, None] * np.ones((8, 4, 2))
    names = [f"algorithm {i}" for i in range(8)]
    ds = xr.Dataset({"personal_test_accuracy": (("algorithm", "round", "client"), close)},
                    {"algorithm": names, "round": ROUNDS})  # fmt: skip
    ax = plots.curves(ds)
    found = sorted(boxes(ax), key=lambda box: box.y0)
    assert len(found) == 8
    assert all(below.y1 < above.y0 for below, above in zip(found[:-1], found[1:], strict=True))
    whole = ax.figure.bbox
    assert all(box.x1 <= whole.x1 and box.y0 >= whole.y0 and box.y1 <= whole.y1 for box in found)


def test_apart_moves_as_little_as_it_takes():
    np.testing.assert_allclose(drawing.apart(np.array([0.1, 0.5, 0.9]), 0.1), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(drawing.apart(np.array([0.5, 0.5]), 0.1), [0.45, 0.55])
    np.testing.assert_allclose(drawing.apart(np.array([1.0, 1.0, 1.0]), 0.1), [0.8, 0.9, 1.0])
    assert drawing.apart(np.array([]), 0.1).size == 0


def test_partition_shows_the_counts_of_labels():
    counts = np.array([[3, 0, 1], [0, 2, 2]])
    rows = np.split(np.arange(8), [4])
    y = np.array([0, 0, 0, 2, 1, 1, 2, 2])
    ax = plots.partition(jf.ClientData.from_indices(np.zeros((8, 1)), y, rows))
    bubbles = ax.collections[0]
    client, label = bubbles.get_offsets().astype(int).T
    np.testing.assert_array_equal(counts[client, label], bubbles.get_array())
    assert len(client) == (counts > 0).sum()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("client", "class")


def test_a_partition_of_many_clients_is_an_image_sorted_on_request():
    counts = np.eye(3, dtype=int)[np.random.default_rng(0).integers(0, 3, 200)] * 5
    image = plots.partition(counts).images[0].get_array()
    np.testing.assert_array_equal(image.filled(0), counts.T)
    by_class = plots.partition(counts, sort=True).images[0].get_array().filled(0).argmax(axis=0)
    assert (np.diff(by_class) >= 0).all()
    with pytest.raises(ValueError, match="data: got ndarray of shape"):
        plots.partition(np.zeros(3))


def test_heat_map_shows_means_over_clients_and_seeds_with_the_axes_values():
    values = np.random.default_rng(0).random((3, 4, 2, 5))
    da = xr.DataArray(values, dims=("lr", "alpha", "seed", "client"), name="personal_test_accuracy",
                      coords={"lr": [0.01, 0.1, 1.0], "alpha": [0.0, 0.25, 0.5, 1.0]})  # fmt: skip
    ax = plots.heat_map(da, x="alpha", y="lr")
    np.testing.assert_allclose(ax.images[0].get_array(), values.mean((2, 3)))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "0.25", "0.5", "1"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0.01", "0.1", "1"]
    assert texts(ax)[0] == f"{values.mean((2, 3))[0, 0]:.3f}"
    with pytest.raises(ValueError, match="'round'"):
        plots.heat_map(da.expand_dims(round=[0, 1]), x="alpha", y="lr")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: plots.curves(ds, "personal_test_acuracy"), "did you mean 'personal_test_accuracy'"),
        (lambda ds: plots.curves(ds, by="alpha"), "by: got 'alpha', wanted one of the dims"),
        (lambda ds: plots.curves(ds, by="seed"), "further dims algorithm"),
        (lambda ds: plots.curves(ds, band="sd"), "band: got 'sd'"),
        (lambda ds: plots.spread(ds.expand_dims(lr=[0.1, 1.0])), "further dims lr"),
    ],
)
def test_bad_input_names_the_field(ds, call, message):
    with pytest.raises(ValueError, match=message):
        call(ds)


def test_no_figure_is_left_in_pyplot(ds):
    import matplotlib.pyplot as plt

    plots.curves(ds)
    assert not plt.get_fignums()
    own = matplotlib.figure.Figure().add_subplot()
    assert plots.curves(ds, ax=own) is own
