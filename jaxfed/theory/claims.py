"""Claims of the papers as statements about a number: the number's interval decides the verdict, nothing else.

A claim names a statistic and the region in which its statement is true ("the slope is at most -0.8"). An experiment
gives the statistic's confidence interval. The verdict is computed from the two, so a claim that fails is shown as
failing, and one that was measured too coarsely as undecided.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxfed.checks import fail

HOLDS, FAILS, CONDITIONAL, UNDECIDED = "holds", "fails", "conditional", "undecided"
INF = math.inf


class Interval(NamedTuple):
    """A confidence interval of a statistic."""

    low: float
    high: float


class Claim(NamedTuple):
    """A statement of a paper, how it was tested and what was found.

    Fields: `id` (short, for the command line); `source` (paper, theorem, equation or section; "derived" where the
    paper does not say it); `statement`; `experiment`, the module that measured it; `statistic`, what the number is,
    with its unit; `found`, its interval; `region`, where the statement is true (closed; infinite ends allowed).
    Where the statement needs a condition, `condition` names it, `found` was measured where it is met, and `otherwise`
    is the interval of the same statistic where it is not.
    """

    id: str
    source: str
    statement: str
    experiment: str
    statistic: str
    found: Interval
    region: Interval
    condition: str = ""
    otherwise: Interval | None = None

    @property
    def verdict(self) -> str:
        """holds, fails, undecided; conditional where it holds under its condition and fails without."""
        inside = judge(self.found, self.region)
        if self.otherwise is None or inside != HOLDS:
            return inside
        return {HOLDS: HOLDS, FAILS: CONDITIONAL, UNDECIDED: UNDECIDED}[judge(self.otherwise, self.region)]

    def to_json(self) -> dict[str, Any]:
        """Return the claim as an object of claims.json; infinite or undefined numbers are null."""
        number = lambda x: float(x) if math.isfinite(x) else None  # noqa: E731
        both = lambda pair: None if pair is None else [number(x) for x in pair]  # noqa: E731
        return {
            **{name: getattr(self, name) for name in ("id", "source", "statement", "experiment", "statistic")},
            "low": number(self.found.low),
            "high": number(self.found.high),
            "verdict": self.verdict,
            "region": both(self.region),
            "condition": self.condition,
            "otherwise": both(self.otherwise),
        }


class Found(NamedTuple):
    """What a part of an experiment gives: claims, and the Datasets its figures are drawn from, by name."""

    claims: tuple[Claim, ...]
    data: dict[str, xr.Dataset]


def judge(found: Interval, region: Interval) -> str:
    """Return holds if the interval lies in the region, fails if it lies outside, else (or not finite) undecided."""
    if not all(map(math.isfinite, found)):
        return UNDECIDED
    if found.low > found.high:
        fail("found", found, "low at most high")
    if region.low <= found.low and found.high <= region.high:
        return HOLDS
    return FAILS if found.high < region.low or found.low > region.high else UNDECIDED


def at_least(x: float) -> Interval:
    """Return the region [x, inf)."""
    return Interval(x, INF)


def at_most(x: float) -> Interval:
    """Return the region (-inf, x]."""
    return Interval(-INF, x)


def of_mean(values: Any, level: float = 0.95) -> Interval:
    """Return Student's interval of the mean of independent values (seeds) [n]; nan if n < 2 or one is not finite."""
    from scipy import stats

    values = np.asarray(values, float).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        return Interval(math.nan, math.nan)
    error = values.std(ddof=1) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1)) * error
    return Interval(float(values.mean() - half), float(values.mean() + half))


def table(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table, in the order given."""
    rows = [["id", "source", "statement", "statistic", "wanted", "measured", "otherwise", "verdict"]]
    for claim in claims:
        rows.append([
            claim.id, claim.source, claim.statement, claim.statistic, _region(claim.region), _interval(claim.found),
            "" if claim.otherwise is None else f"{_interval(claim.otherwise)} unless {claim.condition}",
            f"**{claim.verdict}**",
        ])  # fmt: skip
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def write(folder: str | Path, claims: Sequence[Claim]) -> None:
    """Write claims.json (a list of objects) and claims.md (the table) to a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.json").write_text(json.dumps([c.to_json() for c in claims], indent=1, allow_nan=False) + "\n")
    (folder / "claims.md").write_text(table(claims) + "\n")


def _interval(found: Interval) -> str:
    return f"{found.low:.3g} to {found.high:.3g}"


def _region(region: Interval) -> str:
    if region.low == -INF:
        return f"at most {region.high:.3g}"
    return f"at least {region.low:.3g}" if region.high == INF else f"{region.low:.3g} to {region.high:.3g}"
