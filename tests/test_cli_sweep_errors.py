"""Bad input to the command line's sweeps and exports: one line and exit status 2, before anything is run."""

import pytest

from jaxfed import sweeps
from jaxfed.cli import main


@pytest.fixture
def called(monkeypatch):
    """Keeps what the sweep is told, which is nothing."""
    told = []
    monkeypatch.setattr(sweeps, "sweep", lambda *a, **k: told.append((a, k)), raising=False)
    return told


BAD = {
    "sweep apfll": "algorithm: got 'apfll', wanted one of apfl, fedavg, local, fine-tuned, scaffold, vfb2 (did you",
    "sweep --seeds 3": "algorithm: got nothing, wanted one of",
    "sweep --config nowhere.toml": "config: got nowhere.toml, wanted a TOML file",
    "sweep apfl --local-steps 5 10": "local_steps: got '5' '10', wanted one value: each needs a sweep of its own (axes",
    "sweep apfl --alpha 0 a": "alpha: got '0' 'a', wanted numbers",
    "sweep apfl --alpha": "alpha: got nothing, wanted at least one number",
    "sweep apfl --alpha 0 0.5 0": "alpha: got 0 twice, wanted each value once",
    "sweep apfl --alpah 0 1": "--alpah: got an unknown option, wanted one of those that jaxfed sweep apfl --help lists",
    "sweep apfl stray": "arguments: got 'stray', wanted options",
    "sweep apfl --seeds 0": "seeds: got 0",
    "sweep apfl --batch 0": "batch: got 0",
    "sweep apfl --memory 0": "memory: got 0, wanted more than 0 GB",
    "sweep apfl --top 0": "top: got 0",
    "sweep apfl --by drift": "by: got 'drift', wanted a quantity whose name ends in one of",
    "sweep apfl --dataset digits --devices 1 --by personal_validation_loss": "by: got 'personal_validation_l",
    "sweep apfl --rounds 0": "num_rounds: got 0",
    "sweep vfb2 --read-delay 1 2": "read_delay: got 2 with --scheduler async, wanted --scheduler fixed",
    "sweep vfb2 --scheduler fixed --read-delay -1 2": "read_delay: got -1, wanted 0 to 120",
    "export": "folder: got nothing, wanted a value",
    "export nowhere": "folder: got nowhere, wanted a folder with finished results",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_exit_status_2(line, called, capsys):
    assert main(line.split()) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and not called
    assert out.err.startswith("jaxfed: error: ") and BAD[line] in out.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = [0, ", "wanted a TOML file ("),
        ("[local]\nlr = 1", "local: got {'lr': 1}, wanted a number, a text"),
        ("alpah = 1", "--alpah: got an unknown option"),
        ('config = "x"', "config: got 'x', wanted no file inside the file"),
        ('lr = ["a"]', "lr: got 'a', wanted numbers"),
    ],
)
def test_a_bad_file_is_one_line_too(text, message, tmp_path, capsys):
    (tmp_path / "bad.toml").write_text(text)
    assert main(["sweep", "apfl", "--config", f"{tmp_path}/bad.toml"]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and message in out.err
