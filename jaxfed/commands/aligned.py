"""How tables and sizes are written."""

from typing import Any


def in_bytes(count: Any) -> str:
    """Return a number of bytes in decimal units: 62.8 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def aligned(rows: list[list[str]]) -> str:
    """Return rows of cells as lines, the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    flush = "<" + ">" * (len(widths) - 1)
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, flush, widths, strict=True)) for row in rows
    )
