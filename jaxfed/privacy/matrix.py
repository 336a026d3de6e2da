"""The attack matrix of a run: what each attack got, beside a control and what was expected."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

AS_EXPECTED, DIFFERS, REPORTED, NOT_MADE = "as expected", "differs", "reported", "not made"


class Row(NamedTuple):
    """One attack by one attacker.

    attack: its id. attacker: who. needs: what it has besides its view. metric: what the numbers are, with units.
    measured; control: the same number where the attack should get nothing, or where it is what is compared with, and
    `against` says which. expected: where theory or the notes put `measured`, (low, high), infinite ends allowed, None
    where nothing is claimed; chance: the same for `control`. An attack that a run gives nothing to work on has a row of
    NaN that claims nothing (see `not_made`).
    """

    attack: str
    attacker: str
    needs: str
    metric: str
    measured: float
    control: float
    against: str
    expected: tuple[float, float] | None
    chance: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        """As expected, differs (either number lies outside its range, or is NaN), reported, or not made."""
        pairs = ((self.measured, self.expected), (self.control, self.chance))
        claimed = [(x, region) for x, region in pairs if region is not None]
        if not claimed:
            return NOT_MADE if math.isnan(self.measured) else REPORTED
        return AS_EXPECTED if all(low <= x <= high for x, (low, high) in claimed) else DIFFERS


def not_made(attack: str, why: str) -> Row:
    """Return the row of an attack that could not be made, and why: the first line, as scikit-learn's say much."""
    return Row(attack, "", "", why.partition("\n")[0], math.nan, math.nan, "none", None, None)


def table(rows: Sequence[Row]) -> str:
    """Return the matrix as a Markdown table."""
    lines = [("attack", "attacker", "needs", "metric", "measured", "expected", "control", "at chance", "verdict")]
    for row in rows:
        lines.append((
            row.attack, row.attacker, row.needs, row.metric, _number(row.measured), _region(row.expected),
            f"{_number(row.control)} ({row.against})", _region(row.chance), row.verdict,
        ))  # fmt: skip
    lines = [tuple(cell.replace("|", "\\|") for cell in line) for line in lines]  # |theta| is no border
    width = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, width, strict=True)) + " |" for line in lines]
    return "\n".join([shown[0], "|" + "|".join("-" * (w + 2) for w in width) + "|", *shown[1:]])


def save(rows: Sequence[Row], path: Path, about: dict[str, Any]) -> None:
    """Write the matrix as JSON, beside the old file and then in its place: `about` the run, and a list of attacks.

    Numbers that are not finite are null.
    """
    number = lambda x: float(x) if math.isfinite(x) else None  # noqa: E731
    region = lambda pair: None if pair is None else [number(x) for x in pair]  # noqa: E731
    attacks = [
        row._asdict()
        | {"measured": number(row.measured), "control": number(row.control), "verdict": row.verdict}
        | {"expected": region(row.expected), "chance": region(row.chance)}
        for row in rows
    ]
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps({"run": about, "attacks": attacks}, indent=2) + "\n")
    temporary.replace(path)


def _number(x: float) -> str:
    if not math.isfinite(x):
        return str(x)
    return f"{x:.1e}" if x != 0 and abs(x) < 1e-3 else f"{x:.3f}"


def _region(pair: tuple[float, float] | None) -> str:
    if pair is None:
        return ""
    low, high = pair
    if low == high:
        return _number(low)
    if math.isinf(low):
        return f"at most {_number(high)}"
    return f"at least {_number(low)}" if math.isinf(high) else f"{_number(low)} to {_number(high)}"
