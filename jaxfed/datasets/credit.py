"""Default of Credit Card Clients (UCI, CC BY 4.0), D1 of the VFB2 paper. The file is not in the package."""

import os
from pathlib import Path

import numpy as np

from jaxfed.datasets.arrays import Arrays, check

FILE, TRAIN_ROWS = "uci_credit_card.csv.gz", 24_000
HEADER = ["ID", *(f"X{i}" for i in range(1, 24)), "Y"]
ONE_HOT = {3, 4, *range(6, 12)}  # education, marriage, payment status of six months; X2 is sex, 1 or 2
STANDARDISED = {1, 5, *range(12, 24)}  # limit, age, bills and payments


def load_credit(data_dir: str | Path | None = None) -> Arrays:
    """30,000 credit cards, 90 features, paid (0) or in default (1, 22.1 %), from `uci_credit_card.csv.gz`.

    The folder is `data_dir`, by default the environment variable JAXFED_DATA_DIR. The first 24,000 rows in file order
    are the train rows: x float32 [24000, 90] and [6000, 90]. Columns are in the file's order: X3, X4, X6..X11 one-hot
    over all values that occur (in either part), X2 - 1, the others standardised by mean and standard deviation of the
    train rows.

    Raises FileNotFoundError where the file is not there, ValueError for another file.
    """
    folder = data_dir or os.environ.get("JAXFED_DATA_DIR")
    path = Path(folder or ".") / FILE
    if not folder or not path.is_file():
        raise FileNotFoundError(
            f"credit: no file {FILE} in {folder or 'an unnamed folder'}: pass data_dir, or set JAXFED_DATA_DIR, to its "
            "folder. It is UCI's 'Default of Credit Card Clients' as gzipped CSV with the header ID,X1,...,X23,Y"
        )
    table = np.genfromtxt(path, delimiter=",", names=True)
    if list(table.dtype.names or ()) != HEADER or len(table) <= TRAIN_ROWS:
        raise ValueError(f"{path}: got {len(table)} rows under {table.dtype.names}, wanted 30000 under ID,X1,...,X23,Y")
    x = np.concatenate([_columns(table, i) for i in range(1, 24)], axis=1).astype(np.float32)
    y = table["Y"].astype(np.int32)
    cut = TRAIN_ROWS
    return check(Arrays(x[:cut], y[:cut], x[cut:], y[cut:], "credit", 2, ("paid", "default")))


def _columns(table: np.ndarray, i: int) -> np.ndarray:
    """Features [row, 1 or more], float64, from column X{i}."""
    column = table[f"X{i}"]
    if i in ONE_HOT:
        return (column[:, None] == np.unique(column)).astype(float)
    if i in STANDARDISED:
        return ((column - column[:TRAIN_ROWS].mean()) / column[:TRAIN_ROWS].std())[:, None]
    return column[:, None] - 1
