"""The runs that the attack matrix needs: the one that is asked for, and its variants, each played once."""

import dataclasses
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail
from jaxfed.privacy.recording import record
from jaxfed.privacy.transcript import Transcript, View
from jaxfed.vertical import PartyData, split
from jaxfed.vertical.blocks import Dense, matrix


@dataclasses.dataclass
class Runs:
    """A run to attack: the arguments of `record`, with `train` and `test` rows (or None).

    attacker: a party without labels that does as it is told and remembers all. known: how many labels it may know.
    """

    seed: int
    algorithm: Any
    train: PartyData
    test: PartyData | None
    scheduler: Any
    num_rounds: Any
    attacker: int
    window: tuple[int, int] | None = None
    known: int = 20

    def record(self, algorithm: Any = None, train: Any = None, scheduler: Any = None, num_rounds: Any = None) -> Any:
        """Return the transcript of a variant of the run: what is not given is as there (whose window only it has)."""
        own = algorithm is None and scheduler is None and num_rounds is None
        return record(
            self.seed,
            self.algorithm if algorithm is None else algorithm,
            self.train if train is None else train,
            scheduler=self.scheduler if scheduler is None else scheduler,
            num_rounds=self.num_rounds if num_rounds is None else num_rounds,
            window=self.window if own else None,
        )

    @cached_property
    def plain(self) -> Transcript:
        """The run itself."""
        return self.record()

    @cached_property
    def shuffled(self) -> Transcript:
        """The same run on labels dealt anew to the rows: it holds nothing of the true ones."""
        return self.record(train=self.relabelled)

    @cached_property
    def relabelled(self) -> PartyData:
        """The training rows with their labels in a random order."""
        return self.shuffle(self.train)

    def shuffle(self, train: PartyData) -> PartyData:
        """Return rows with their labels in a random order."""
        y = np.asarray(train.y)
        return train.replace(y=y[np.random.default_rng((self.seed, 1)).permutation(len(y))])

    def some_rows(self, rows: np.ndarray) -> PartyData:
        """Return some of the training rows, of dense blocks."""
        train = self.train
        if not isinstance(train.blocks, Dense):
            fail("data", "sparse blocks", "a dense table for this attack")
        x, y = np.asarray(train.blocks.x)[rows], np.asarray(train.y)[rows]
        present = None if train.present is None else np.asarray(train.present)[:, rows]
        return train.replace(blocks=train.blocks.replace(x=x), y=y, present=present)

    def dealt_again(self, rows: np.ndarray, intercept: bool) -> PartyData:
        """Return some of the training rows, each party's columns as they are, with or without an intercept."""
        train = self.some_rows(rows)
        parts = np.split(np.arange(train.num_features), np.cumsum(train.sizes)[:-1])
        columns = [part.tolist() for part in parts]
        return split(matrix(train.blocks), train.y, columns=columns, active=train.active, intercept=intercept)

    @property
    def labels(self) -> np.ndarray:
        """The true labels [n]."""
        return np.asarray(self.train.y)

    def view(self, transcript: Transcript) -> View:
        """Return what the attacker has."""
        return transcript.view(self.attacker)

    def some_labels(self, positives_only: bool = False) -> dict[int, int]:
        """Return labels that the attacker may know, {row: label}: `known` of them, of both classes; or that of one
        positive of the run's window (ValueError where it has none)."""
        rng, y = np.random.default_rng((self.seed, 2)), self.labels
        if positives_only:
            seen = np.unique(np.concatenate([self.plain.rows.ravel(), *(np.arange(len(y)) for _ in self.plain.passes)]))
            if not (positive := seen[y[seen] > 0]).size:
                fail("window", f"{len(seen)} samples, all negative", "one positive that the attacker may know")
            return {int(rng.choice(positive)): 1}
        order = rng.permutation(len(y))
        first = [order[y[order] == sign][0] for sign in (-1, 1)]  # one of each, or nothing can be fitted
        rest = [row for row in order if row not in first][: max(self.known - 2, 0)]
        return {int(row): int(y[row]) for row in (*first, *rest)}

    def accuracy(self, transcript: Transcript) -> float:
        """Return the accuracy on test rows (training rows where there are none) of the model at a window's end."""
        rows = self.train if self.test is None else self.test
        scores = np.asarray(rows.blocks.scores(jnp.asarray(transcript.weights)))
        return float(np.mean((scores > 0) == (np.asarray(rows.y) > 0)))
