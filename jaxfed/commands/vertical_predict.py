"""What a saved vertical run's model says of rows: the data set's, or a file's."""

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxfed as jf
from jaxfed import checks
from jaxfed.commands import rows, vertical
from jaxfed.commands.catalogue import Predict
from jaxfed.vertical import measures


def predict(options: Predict, ran: Any) -> int:
    """Write one line for each row, say how good the scores are, and return 0.

    Raises ValueError for a client, for rows that the run has not got, and for a file of other rows.
    """
    for field, otherwise in (("client", None), ("server", False)):
        given = getattr(options, field)
        if given is not otherwise:
            checks.fail(field, given, "none: a vertical run has parties, and one model")
    vertical.start_device(ran.running)
    state = jf.load(options.folder).state
    train, test = vertical.party_data(ran.data)
    algorithm = vertical.method(ran)
    if options.x is None:
        part = {"train": train, "test": test}.get(options.rows)
        if part is None:
            checks.fail("rows", repr(options.rows), "train" if test is None else "train or test: there are no others")
    else:
        part = train.like(rows.read(options.x, (train.width,)))
    z = np.asarray(algorithm.predict(state, part))
    predicted = np.where(z > 0, *train.classes[::-1]) if train.classes else z
    label = None
    if part.y is not None:
        label = np.where(part.y > 0, *train.classes[::-1]) if train.classes else np.asarray(part.y)
    scores = {"score": z} if train.classes else {}
    rows.write(options.out, {**({} if label is None else {"label": label}), **scores, "prediction": predicted})
    if label is not None:
        if train.classes:
            auc = float(measures.auc(jnp.asarray(z), jnp.asarray(part.y)))
            good = f"accuracy {np.mean(predicted == label):.4f}, AUC {auc:.4f}"
        else:
            good = f"root mean squared error {np.sqrt(np.mean((z - label) ** 2)):.4f}"
        out = sys.stderr if options.out is None else sys.stdout
        print(f"the model on {len(z)} {options.rows} rows: {good}", file=out)
    return 0
