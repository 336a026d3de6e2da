"""compare: each entry is a run of its own, labelled; what an algorithm lacks is nan; what is refused says so."""

import json

import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed import results
from jaxfed.sweeps import compare

OPTIONS = dict(num_rounds=4, every=2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0)
    owner = np.arange(60) % 5
    rows = [np.flatnonzero(owner == i) for i in range(5)]
    train = jf.ClientData.from_indices(x, y, [r[:8] for r in rows])
    test = jf.ClientData.from_indices(x, y, [r[8:] for r in rows])
    return train, test


@pytest.fixture(scope="module")
def algorithms():
    model = jf.models.logistic_regression(num_classes=3)
    common = dict(lr=0.1, local_steps=2, batch_size=4)
    return {"FedAvg": jf.FedAvg(model, **common), "APFL": jf.APFL(model, adaptive=True, **common)}


@pytest.fixture(scope="module")
def ds(algorithms, data):
    return compare(algorithms, 7, data[0], test=data[1], seeds=2, **OPTIONS)


def test_each_entry_is_exactly_the_run_of_its_seed(ds, algorithms, data):
    assert dict(ds.sizes) == {"algorithm": 2, "seed": 2, "round": 3, "client": 5}
    assert ds["algorithm"].values.tolist() == ["FedAvg", "APFL"]
    assert ds["seed"].values.tolist() == [7, 8]
    for name, algorithm in algorithms.items():
        for j in range(2):
            one = jf.run(7 + j, algorithm, data[0], test=data[1], **OPTIONS).dataset
            entry = ds.sel(algorithm=name, seed=7 + j)
            for variable in one.data_vars:
                np.testing.assert_array_equal(entry[variable], one[variable], err_msg=f"{name} {j} {variable}")
            for coordinate in ("time", "train_size", "test_size"):
                np.testing.assert_array_equal(entry[coordinate], one[coordinate])
    assert (ds.sel(seed=7)["personal_train_loss"] != ds.sel(seed=8)["personal_train_loss"]).any()


def test_what_an_algorithm_does_not_record_is_nan(ds):
    assert ds["mixing_weight"].sel(algorithm="FedAvg").isnull().all()
    assert ds["mixing_weight"].sel(algorithm="APFL").notnull().all()
    assert ds["mixing_weight"].dims == ("algorithm", "seed", "round", "client")
    assert ds["finite"].dtype == bool and ds["finite"].all()


def test_a_list_of_seeds_is_taken_as_it_stands_and_one_seed_keeps_its_dimension(ds, algorithms, data):
    listed = compare({"APFL": algorithms["APFL"]}, 0, data[0], test=data[1], seeds=[8], **OPTIONS)
    assert listed["seed"].values.tolist() == [8]
    np.testing.assert_array_equal(
        listed["personal_test_loss"].values[0, 0], ds["personal_test_loss"].sel(algorithm="APFL", seed=8)
    )


def test_settings_are_told_for_each_algorithm_and_survive_a_file(ds, algorithms, data, tmp_path):
    told = json.loads(ds.attrs["algorithm"])
    assert list(told) == ["FedAvg", "APFL"]
    assert told["APFL"] == repr(algorithms["APFL"])
    assert ds.attrs["num_rounds"] == 4 and "seed" not in ds.attrs
    one = jf.run(0, algorithms["FedAvg"], data[0], **OPTIONS).dataset
    assert ds["bytes_per_visit"].sel(algorithm="FedAvg") == one.attrs["bytes_per_visit"]
    results.save_dataset(ds, tmp_path / "results.nc")
    back = results.load_dataset(tmp_path / "results.nc")
    xr.testing.assert_equal(back, ds)
    assert back.attrs["algorithm"] == ds.attrs["algorithm"]


def test_ctrl_c_keeps_the_algorithms_that_are_finished(algorithms, data, monkeypatch):
    from jaxfed import runner

    run, calls = runner.run, []

    def cut_short(seed, algorithm, *args, num_rounds, **options):
        calls.append(seed)
        return run(seed, algorithm, *args, num_rounds=num_rounds if len(calls) < 4 else 2, **options)

    monkeypatch.setattr(runner, "run", cut_short)
    with pytest.warns(UserWarning, match="interrupted.*FedAvg"):
        left = compare(algorithms, 0, data[0], seeds=2, **OPTIONS)
    assert left["algorithm"].values.tolist() == ["FedAvg"] and left.sizes["seed"] == 2
    with pytest.raises(KeyboardInterrupt):
        compare(algorithms, 0, data[0], **OPTIONS)


def test_one_bar_names_the_run_at_hand(algorithms, data, capsys):
    compare({"FedAvg": algorithms["FedAvg"]}, 0, data[0], progress=True, **OPTIONS)
    assert "FedAvg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(algorithms={}), "algorithms: got none"),
        (dict(seeds=0), "seeds: got 0"),
        (dict(seeds=[]), "seeds: got"),
        (dict(seeds=[1, 1]), "none twice"),
        (dict(seeds=[1, 2.5]), r"seeds\[1\]: got 2.5"),
        (dict(seed="a"), "seed: got 'a'"),
        (dict(num_rounds=0), "num_rounds: got 0"),
    ],
)
def test_bad_input_names_the_field(change, message, algorithms, data):
    arguments = dict(algorithms=algorithms, seed=0, data=data[0], **OPTIONS) | change
    with pytest.raises(ValueError, match=message):
        compare(**arguments)
