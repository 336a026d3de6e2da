"""What a saved run's models say of rows: the client's own, or a file's."""

import sys
from typing import Any

import jax
import numpy as np

import jaxfed as jf
from jaxfed import checks
from jaxfed.commands import build, rows, settings
from jaxfed.commands.catalogue import Predict


def predict(options: Predict) -> int:
    """Write one line for each row, say how many are right, and return 0.

    Raises ValueError for a client that isn't there, rows that the run has not got, and a file of other rows.
    """
    command, ran = settings.load(options.folder)
    if command == "compare" or command.startswith("sweep"):
        kind = "comparison" if command == "compare" else "sweep"
        checks.fail("folder", f"a {kind} in {options.folder}", "a run of one algorithm")
    if command == "vfb2":
        from jaxfed.commands import vertical_predict

        return vertical_predict.predict(options, ran)
    if options.client is None:
        checks.fail("client", "nothing", f"the number of a client, 0 to {ran.data.num_clients - 1}")
    checks.whole("client", options.client, 0)
    if ran.running.x64:
        jax.config.update("jax_enable_x64", True)
    state = jf.load(options.folder).state
    arrays, data = build.client_data(ran.data)
    if options.client >= data.train.num_clients:
        checks.fail("client", options.client, f"0 to {data.train.num_clients - 1}")
    algorithm = build.algorithm(command, ran, build.model(ran.net, arrays))
    x, y = _rows(options, data)
    z = np.asarray(algorithm.predict(state, x, None if options.server else options.client, data))
    predicted = np.argmax(z, axis=1) if arrays.num_classes else z
    rows.write(options.out, ({} if y is None else {"label": y}) | {"prediction": predicted})
    if y is not None and len(y):
        _say(options, y, predicted, arrays.num_classes)
    return 0


def _rows(options: Predict, data: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return rows [n, ...] and their labels [n] (None for a file's)."""
    if options.x is None:
        part = getattr(data, options.rows)
        if part is None:
            checks.fail("rows", repr(options.rows), "train or test: the run kept no validation rows")
        return part.client(options.client)
    return rows.read(options.x, data.train.x.shape[1:]), None


def _say(options: Predict, y: np.ndarray, predicted: np.ndarray, num_classes: int) -> None:
    """Say how good the predictions are: beside the lines where those are in a file, else on the error stream."""
    who = "the server's model" if options.server else f"the model of client {options.client}"
    good = (
        f"accuracy {np.mean(predicted == y):.4f}"
        if num_classes
        else f"root mean squared error {np.sqrt(np.mean((predicted - y) ** 2)):.4f}"
    )
    print(f"{who} on its {len(y)} {options.rows} rows: {good}", file=sys.stderr if options.out is None else sys.stdout)
