"""From parts to the table: `jaxfed theory` with experiments that take no time, as a user calls it."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from jaxfed.cli import main
from jaxfed.commands.parse import parse
from jaxfed.theory import report
from jaxfed.theory.claims import Claim, Found, Interval, at_least, at_most

ROOT = Path(__file__).parents[1]


def figure(values):
    from matplotlib.figure import Figure

    fig = Figure()
    fig.add_subplot().plot(values)
    return fig


class Toy:
    """An experiment of two parts: `calls` are what was measured, `stop` a part that is interrupted."""

    def __init__(self, name):
        self.name, self.calls, self.stop, self.drawn = name, [], None, []
        self.PARTS = {self.first: (f"{name}-a", f"{name}-b"), self.second: (f"{name}-c",)}

    def found(self, part, ids, smoke, seed):
        self.calls.append((part, smoke, seed))
        if self.stop == part:
            raise KeyboardInterrupt
        value = np.inf if smoke else seed + 0.5
        claims = [Claim(id, "derived", f"It is {id}", self.name, "number", Interval(value, value + 1), at_least(0.2))
                  for id in ids]  # fmt: skip
        return Found(tuple(claims), {part: xr.Dataset({"x": ("t", [1.0, seed])})})

    def first(self, smoke=False, seed=0):
        return self.found("first", [f"{self.name}-b", f"{self.name}-a"], smoke, seed)

    def second(self, smoke=False, seed=0):
        found = self.found("second", [f"{self.name}-c"], smoke, seed)
        claim = found.claims[0]._replace(region=at_most(0.2), otherwise=Interval(0.0, np.nan), condition="it rains")
        return Found((claim,), found.data)

    def draw(self, data):
        self.drawn.append(sorted(data))
        return {name: figure(ds["x"].values) for name, ds in data.items()}


@pytest.fixture
def toys(monkeypatch):
    made = {name: Toy(name) for name in ("one", "two")}
    for name, toy in made.items():
        monkeypatch.setitem(sys.modules, f"jaxfed.theory.experiments.{name}", toy)
    monkeypatch.setattr(report, "EXPERIMENTS", ("one", "two"))
    monkeypatch.setattr(report, "cores", lambda: 1)  # other processes would not know the toys
    return SimpleNamespace(**made)


def held(folder):
    return json.loads((folder / "claims.json").read_text())


def test_all_claims_in_their_order(toys, tmp_path, capsys):
    assert main(["theory", "--seed", "3", "--out", str(tmp_path / "new")]) == 0
    ids = ["one-a", "one-b", "one-c", "two-a", "two-b", "two-c"]
    assert toys.one.calls == toys.two.calls == [("first", False, 3), ("second", False, 3)]
    assert [o["id"] for o in held(tmp_path / "new")] == ids
    assert [o["verdict"] for o in held(tmp_path / "new")] == ["holds", "holds", "fails"] * 2
    text = capsys.readouterr().out
    assert "one: first ...\n[1 of 4] one: first: one-b holds, one-a holds (" in text
    assert re.findall(r"^\| (\S+) \| derived", text, re.M) == ids and "6 claims: 4 holds, 2 fails" in text
    assert (tmp_path / "new" / "claims.md").read_text() in text
    files = {str(p.relative_to(tmp_path / "new")) for p in (tmp_path / "new").rglob("*") if p.is_file()}
    figures = {f"{e}-{p}.png" for e in ("one", "two") for p in ("first", "second")}
    assert files == {"claims.json", "claims.md", "theory.json"} | figures | {f"data/{f[:-3]}nc" for f in figures}
    assert all((tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG") for name in figures)


def test_without_a_folder_nothing_is_written(toys, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "--smoke"]) == 0
    assert toys.one.calls[0] == ("first", True, 0) and not list(tmp_path.iterdir())
    text = capsys.readouterr().out
    assert "6 claims: 6 undecided" in text and "not saved" in text


def test_only_some_claims(toys, tmp_path, capsys):
    out = tmp_path / "new"
    assert main(["theory", "--only", "two-c", "one-a", "--out", str(out)]) == 0
    assert toys.one.calls == [("first", False, 0)] and toys.two.calls == [("second", False, 0)]
    assert [o["id"] for o in held(out)] == ["one-a", "two-c"]
    assert "one-b" not in capsys.readouterr().out
    assert main(["theory", "--out", str(out)]) == 0  # the others: one-b needs its part again
    assert len(toys.one.calls) == 3 and toys.two.calls == [("second", False, 0), ("first", False, 0)]
    assert [o["id"] for o in held(out)] == ["one-a", "one-b", "one-c", "two-a", "two-b", "two-c"]


def test_an_unknown_claim_is_named_before_anything_is_measured(toys, tmp_path, capsys):
    assert main(["theory", "--only", "one-a", "two_c", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said == (
        "jaxfed: error: only: got 'two_c', wanted one of 'one-a', 'one-b', 'one-c', 'two-a', 'two-b', 'two-c' "
        "(did you mean 'two-c'?)\n"
    )
    assert not toys.one.calls and not (tmp_path / "new").exists()
    assert main(["theory", "--seed", "-1"]) == 2 and "seed: got -1" in capsys.readouterr().err
    assert main(["theory", "--onyl", "one-a"]) == 2 and "did you mean --only?" in capsys.readouterr().err


@pytest.mark.parametrize("smoke", [[], ["--smoke"]])
def test_a_stop_loses_no_finished_part_and_the_same_line_goes_on(toys, tmp_path, capsys, smoke):
    out = tmp_path / "new"
    toys.two.stop = "first"
    assert main(["theory", *smoke, "--out", str(out)]) == 130
    before = held(out)
    assert [o["id"] for o in before] == ["one-a", "one-b", "one-c"]
    toys.two.stop = None
    assert main(["theory", *smoke, "--out", str(out)]) == 0
    assert len(toys.one.calls) == 2 and len(toys.two.calls) == 3
    assert held(out)[:3] == before and len(held(out)) == 6  # as they were, infinite and undefined numbers too
    ran = capsys.readouterr().out
    assert main(["theory", *smoke, "--out", str(out)]) == 0  # all is there: the table again
    assert len(toys.one.calls) == 2 and len(toys.two.calls) == 3
    assert capsys.readouterr().out.splitlines()[1:] == ran[ran.rindex("| id |") :].splitlines()
    fresh = tmp_path / "fresh"
    assert main(["theory", *smoke, "--out", str(fresh)]) == 0
    assert held(fresh) == held(out) and (fresh / "claims.md").read_text() == (out / "claims.md").read_text()


def test_processes_side_by_side_measure_the_same(tmp_path):
    ids = ("alpha-star-inside", "alpha-star-tight")
    alone, both = (report.run(ids, smoke=True, out=tmp_path / str(n), say=lambda _: None, workers=n) for n in (1, 2))
    assert alone == both and [claim.id for claim in both] == list(ids)
    assert held(tmp_path / "1") == held(tmp_path / "2")


def test_a_part_that_is_there_is_not_drawn_again(toys, tmp_path):
    toys.one.stop = "second"
    assert main(["theory", "--out", str(tmp_path / "new")]) == 130
    toys.one.stop = None
    assert main(["theory", "--out", str(tmp_path / "new")]) == 0
    assert toys.one.drawn == [["first"], ["second"]]


def test_a_folder_of_other_settings_is_refused(toys, tmp_path, capsys):
    out = tmp_path / "new"
    assert main(["theory", "--smoke", "--only", "one-a", "--out", str(out)]) == 0
    before = held(out)
    assert main(["theory", "--seed", "1", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "claims with smoke True (here False), seed 0 (here 1), wanted the same, or another folder" in said
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    assert main(["theory", "--out", str(tmp_path / "mine")]) == 2
    assert "wanted a folder that is empty, new, or holds claims" in capsys.readouterr().err
    assert held(out) == before and len(toys.one.calls) == 1


def test_a_part_gives_the_claims_that_it_promises(toys):
    toys.one.PARTS = {toys.one.first: ("one-a",)}
    with pytest.raises(ValueError, match="first: got the claims one-b, one-a, wanted those of PARTS, one-a"):
        report.run(experiments=("one",), say=lambda _: None)
    toys.one.PARTS = {toys.one.first: ("one-a",), toys.one.second: ("one-a",)}
    with pytest.raises(ValueError, match="PARTS: got 'one-a' twice"):
        report.run(experiments=("one",), say=lambda _: None)


def test_scripts_call_their_experiment(toys, tmp_path, monkeypatch, capsys):
    report.script("two", ["--only", "two-a", "--seed", "2", "--out", str(tmp_path / "new")])
    assert toys.two.calls == [("first", False, 2)] and not toys.one.calls
    assert "| two-a |" in capsys.readouterr().out and [o["id"] for o in held(tmp_path / "new")] == ["two-a"]
    asked = []
    monkeypatch.setattr(report, "script", asked.append)
    scripts = sorted((ROOT / "scripts").glob("theory_*.py"))
    for path in scripts:
        runpy.run_path(str(path), run_name="__main__")
    assert asked == [path.stem.removeprefix("theory_") for path in scripts] and len(asked) == 5


def test_help_waits_for_no_heavy_import():
    code = (
        "import sys; from jaxfed.cli import main\ntry:\n main(['theory', '--help'])\nexcept SystemExit:\n pass\n"
        "heavy = {'jax', 'matplotlib', 'scipy', 'xarray'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--only ID [ID ...]" in done.stdout and "--smoke" in done.stdout
    assert parse(["theory", "--only", "a", "b", "--smoke"])[1].only == ("a", "b")
