"""What a user sees while a run is going on, and how much is handed to the device at once."""

import sys
import time
from importlib.util import find_spec
from typing import Any

import numpy as np

from jaxfed import processes


class Pace:
    """How many rounds to hand to the device at once: as many as take about a quarter of a second, or a fixed number.

    Short calls keep the bar moving and Ctrl-C prompt. The length of a call changes no result and compiles nothing.
    `seconds`: how long the last call took; `adapt` sets the next one's length by it, or by what processes agreed on.
    """

    def __init__(self, chunk: int | None):
        self.fixed, self.rounds, self.seconds = chunk is not None, chunk or 1, 0.0

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.start

    def adapt(self, seconds: float) -> None:
        """Choose the next length, twice the last or half of it, from the seconds that this took."""
        if not self.fixed:
            self.rounds = self.rounds * 2 if seconds < 0.25 else max(self.rounds // 2, 1)


HEADLINES = (
    "personal_test_accuracy",
    "personal_train_accuracy",
    "personal_test_loss",
    "personal_train_loss",
    "objective",
)


def headline(bar: Any, record: dict[str, np.ndarray]) -> None:
    """Show the mean over clients of the first headline there is."""
    names = (full for name in HEADLINES for full in (name, f"{name}_mean_over_clients") if full in record)
    name = next(names, None)
    if name is not None:
        there = np.asarray(record[name])[~np.isnan(record[name])]
        bar.set_postfix({name: f"{there.mean() if there.size else np.nan:.4f}"})


def progress_bar(progress: bool | None, total: int, done: int = 0) -> Any:
    """A progress bar with rounds per second and time left, `done` behind it; nothing where it is not wanted
    or in another process than the first."""
    notebook = "ipykernel" in sys.modules
    wanted = (sys.stderr.isatty() or notebook) if progress is None else progress
    if notebook and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    return tqdm(total=total, initial=done, unit="round", disable=not (wanted and processes.first()))
