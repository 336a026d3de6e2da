"""Verdicts from intervals, nothing else; the table and claims.json."""

import json

import numpy as np
import pytest
from scipy import stats

from jaxfed.theory import claims
from jaxfed.theory.claims import Claim, Interval, at_least, at_most, judge

NAN = Interval(np.nan, np.nan)


FAST = at_most(-0.8)


def claim(found, region=FAST, id="slope", **more):
    return Claim(id, "APFL, Theorem 1", "The rate is 1 / T", "descent", "exponent in T", found, region, **more)


@pytest.mark.parametrize(
    "found, region, wanted",
    [
        (Interval(-1.1, -0.9), at_most(-0.8), "holds"),
        (Interval(-1.1, -0.8), at_most(-0.8), "holds"),
        (Interval(-0.7, -0.5), at_most(-0.8), "fails"),
        (Interval(-0.9, -0.7), at_most(-0.8), "undecided"),
        (Interval(0.2, 0.3), at_least(0.1), "holds"),
        (Interval(0.0, 0.05), at_least(0.1), "fails"),
        (Interval(0.9, 1.1), Interval(0.8, 1.2), "holds"),
        (Interval(0.5, 0.7), Interval(0.8, 1.2), "fails"),
        (Interval(1.3, 1.4), Interval(0.8, 1.2), "fails"),
        (Interval(0.5, 1.5), Interval(0.8, 1.2), "undecided"),  # too coarse, not wrong
        (NAN, at_least(0.1), "undecided"),
        (Interval(0.2, np.inf), at_least(0.1), "undecided"),
        (Interval(np.nan, 1.0), at_least(0.1), "undecided"),
    ],
)
def test_the_interval_decides(found, region, wanted):
    assert judge(found, region) == wanted
    assert claim(found, region).verdict == wanted


def test_an_interval_has_its_ends_in_order():
    with pytest.raises(ValueError, match="low at most high"):
        judge(Interval(1.0, 0.0), at_least(0.5))


def test_a_claim_with_a_condition():
    good, bad, coarse = Interval(-1.1, -0.9), Interval(-0.5, -0.4), Interval(-1, -0.5)
    verdict = lambda found, otherwise: claim(found, condition="the step is small", otherwise=otherwise).verdict  # noqa: E731
    assert verdict(good, bad) == "conditional"  # with the condition only
    assert verdict(good, good) == "holds"  # with it or without
    assert verdict(good, coarse) == verdict(good, NAN) == "undecided"
    assert verdict(bad, good) == verdict(bad, bad) == "fails"
    assert verdict(coarse, bad) == verdict(NAN, bad) == "undecided"


def test_students_interval():
    values = np.random.default_rng(0).normal(3, 2, size=7)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert claims.of_mean(values, 0.9) == pytest.approx((low, high))
    for values in ([1.0], [], [1.0, np.nan], [1.0, np.inf]):
        assert np.isnan(claims.of_mean(values)).all()
    assert claims.of_mean([2.0, 2.0]) == (2, 2)


def test_table_and_json(tmp_path):
    found = [
        claim(Interval(-1.1, -0.9)),
        claim(Interval(-0.5, -0.4), id="a | b"),
        claim(NAN, Interval(0, 1), id="nan"),
        claim(Interval(-1.1, -0.9), id="if", condition="the step is small", otherwise=Interval(0.0, 0.1)),
    ]
    claims.write(tmp_path / "new" / "folder", found)
    text = (tmp_path / "new" / "folder" / "claims.md").read_text()
    rows = text.splitlines()
    assert len(rows) == 2 + len(found) and rows[1].startswith("| --- |")
    assert {row.replace("\\|", "").count("|") for row in rows} == {9}
    assert "| at most -0.8 | -1.1 to -0.9 |  | **holds** |" in rows[2]
    assert "a \\| b" in rows[3] and "**fails**" in rows[3]
    assert "| 0 to 1 | nan to nan |  | **undecided** |" in rows[4]
    assert "0 to 0.1 unless the step is small | **conditional** |" in rows[5]
    objects = json.loads((tmp_path / "new" / "folder" / "claims.json").read_text())  # strict: no NaN, no Infinity
    assert [o["verdict"] for o in objects] == ["holds", "fails", "undecided", "conditional"]
    keys = {"id", "source", "statement", "experiment", "statistic", "low", "high", "verdict"}
    assert all(keys <= o.keys() for o in objects)
    assert objects[0]["low"] == -1.1 and objects[0]["region"] == [None, -0.8] and objects[0]["otherwise"] is None
    assert objects[2]["low"] is None and objects[2]["high"] is None
    assert objects[3]["otherwise"] == [0.0, 0.1] and objects[3]["condition"] == "the step is small"
