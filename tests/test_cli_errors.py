"""The command line's errors: one line and exit status 2 for every kind of bad input."""

import pytest

from jaxfed.cli import main

HERE = ["--devices", "1"]  # jax may run already in this process, and then no more devices can be asked for


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a round of adaptive APFL."""
    folder = tmp_path_factory.mktemp("runs") / "apfl"
    line = "apfl --adaptive --rounds 1 --dataset digits --num-clients 8 --classes-per-client 2 --validation 0.2 --quiet"
    assert main([*line.split(), "--data-seed", "3", *HERE, "--out", str(folder)]) == 0
    return folder


BAD = {
    "nope": "command: got 'nope', wanted one of",
    "fedavgg": "did you mean fedavg?",
    "apfl --modle mlp": "--modle: got an unknown option, wanted one of those that jaxfed apfl --help lists"
    " (did you mean --model?)",
    "apfl stray": "arguments: got 'stray', wanted options",
    "apfl --lr fast": "lr: got 'fast', wanted a number",
    "apfl --rounds 2.5": "rounds: got '2.5', wanted a whole number",
    "apfl --lr 1 --lr": "lr: got nothing, wanted a number",
    "apfl --model mpl": "model: got 'mpl', wanted one of 'logistic', 'mlp', 'cnn', 'linear' (did you mean mlp?)",
    "apfl --batch_size=fulll": "batch_size: got 'fulll', wanted a whole number or 'full' (did you mean full?)",
    "apfl --hidden 3 b": "hidden: got '3' 'b', wanted whole numbers",
    "compare --algorithms fedavg scafold": "(did you mean scaffold?)",
    "predict": "folder: got nothing",
    "predict nowhere": "folder: got nowhere, wanted a folder that jaxfed wrote",
    "predict SAVED": "client: got nothing, wanted the number of a client, 0 to 7",
    "show SAVED --target-objective 1": "target_objective: got 1.0, wanted none for a run of 'apfl'",
    "show nowhere": "folder: got nowhere, wanted a folder that jaxfed wrote",
    "apfl --dataset digts": "dataset: got 'digts', wanted one of 'mnist5k', 'digits',",
    "apfl --dataset idx:nowhere": "nowhere: no file train-images-idx3-ubyte",
    "apfl --iid --concentration 1": "partition: got --iid and --concentration, wanted one of",
    "apfl --dataset digits --classes-per-client 11": "classes_per_client: got 11, wanted at most 10, the classes",
    "apfl --dataset digits --num-clients 1438": "num_clients: got 1438, wanted at most 1437, the training rows",
    "apfl --num-clients 0": "num_clients: got 0, wanted a whole number of at least 1",
    "apfl --concentration 0": "concentration: got 0, wanted at least",
    "apfl --quantity nan": "quantity: got nan, wanted at least",
    "apfl --validation 1": "validation: got 1, wanted 0 to below 1",
    "apfl --rounds 0": "num_rounds: got 0, wanted a whole number of at least 1",
    "apfl --seed -1": "seed: got -1",
    "apfl --devices 0": "devices: got 0",
    "apfl --target-accuracy 90": "target_accuracy: got 90, wanted 0 to 1",
    "apfl --dataset digits --alpha 1.5": "alpha: got 1.5, wanted 0 to 1",
    "apfl --dataset digits --lr -0.1": "lr: got -0.1, wanted at least 0",
    "apfl --dataset digits --cohort-size 101": "cohort_size: got 101, wanted at most 100",
    "apfl --dataset digits --local-epochs 2": "local_epochs: got 2, wanted batches",
    "fedavg --dataset digits --momentum 1": "momentum: got 1, wanted 0 to below 1",
    "apfl --dataset diabetes --num-clients 5": "model: got 'logistic' for real targets, wanted 'linear'",
    "apfl --dataset digits --model linear": "model: got 'linear' for classes, wanted 'logistic'",
    "apfl --dataset breast_cancer --model cnn": "model: got 'cnn' for rows of shape (30,), wanted images",
    "predict SAVED --client 8": "client: got 8, wanted 0 to 7",
    "predict SAVED --client 1 --x SAVED/settings.json": "wanted a NumPy file of one array",
    "fedavg --continue-from SAVED": "continue_from: got a run of 'apfl'",
    "apfl --continue-from SAVED --num-clients 9": "num_clients: got 9, wanted 8, as in",
    "apfl --continue-from SAVED --model mlp": "model: got mlp, wanted logistic, as in",
    "apfl --continue-from SAVED --preset fedtorch": "preset: got fedtorch",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_exit_status_2(line, saved, capsys):
    words = line.replace("SAVED", str(saved)).split()
    runs = words[0] not in ("show", "predict") and "--devices" not in words
    assert main([words[0], *(HERE if runs else []), *words[1:]]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1
    assert out.err.startswith("jaxfed: error: ") and BAD[line] in out.err


def test_a_folder_cannot_be_a_file_and_debug_shows_the_traceback(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["local", "--debug", "--out", f"{tmp_path}/file"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and "which is a file; wanted a folder" in err.splitlines()[-1]
