"""What README and CONTRIBUTING print as Python runs as printed."""

import re
import runpy
from pathlib import Path

import pytest

import jaxfed as jf
from jaxfed import testing

ROOT = Path(__file__).parents[1]


def blocks(name):
    """The Python blocks of a document, without the indentation of a list."""
    found = re.findall(r"^( *)```python\n(.*?)^ *```", (ROOT / name).read_text(), re.M | re.S)
    return ["\n".join(line[len(indent):] for line in body.splitlines()) for indent, body in found]  # fmt: skip


@pytest.mark.parametrize("number", range(len(blocks("README.md"))))
def test_readme(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("block.py").write_text(blocks("README.md")[number])
    names = runpy.run_path("block.py")
    if "terms" in names:
        assert 0 < names["g"].best_alpha(names["terms"]) < 1
        return
    if "guess" in names:
        seen = names["transcript"].rows.ravel()
        assert (names["guess"][seen] == names["party"].y[seen]).all()
        return
    assert (names["out"].dataset if "out" in names else names["ds"]).finite.all()


def test_contributing(tmp_path):
    (example,) = blocks("CONTRIBUTING.md")
    (tmp_path / "fedprox.py").write_text(example + "\n")
    names = runpy.run_path(str(tmp_path / "fedprox.py"))
    model, data = jf.models.logistic_regression(3), testing.ragged_data()
    fedprox = names["FedProx"](model, local_steps=2, batch_size=4)
    testing.check_row_padding(fedprox, data, 3)
    testing.check_outside_cohort(fedprox, data, 2)
    free = jf.run(0, fedprox.replace(mu=0.0), data, num_rounds=3, progress=False)
    plain = jf.run(0, jf.FedAvg(model, local_steps=2, batch_size=4), data, num_rounds=3, progress=False)
    testing.assert_close(free.state, plain.state, "mu = 0 is not FedAvg")
