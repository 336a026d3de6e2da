"""Model completion: label inference from a party's own trained block and a few labels, where theta is hidden.

Fu et al. 2022 ("Label inference attacks against vertical federated learning"): the bottom model that training gave the
attacker is a good start for a model of its own. For a linear model the bottom output is one number, o = x w, so what
has to be completed is a threshold and a scale. Its AUC is that of o itself (or one less that, where few labels give the
scale the wrong sign). The active attack is the same one after a run in which the attacker multiplied its own steps. In
a linear model that gains nothing once training has converged: own steps of another size do not move the optimum.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, flag
from jaxfed.privacy.transcript import View


class Completion(NamedTuple):
    """Scores for the +1 class, above 0 for a guess of +1: by completion and by a local model without federation.

    scores, local [n] of the view's samples; test_scores, test_local [n_test], or None. output [n]: o itself, by which
    an attacker that knows that the scores add up to the model's ranks samples without any label.
    """

    output: np.ndarray
    scores: np.ndarray
    local: np.ndarray
    test_scores: np.ndarray | None
    test_local: np.ndarray | None


def complete(
    view: View, known: Mapping[int, int], *, test_x: np.ndarray | None = None, self_training: bool = False
) -> Completion:
    """Return the completed model's scores, and those of a local model on the attacker's features from the same labels.

    known: {row: -1 or +1}, both classes among them. test_x [n_test, d_own]: the attacker's features of other samples.
    self_training: both models also learn from their own confident guesses on the samples without a label (Yarowsky
    1995, scikit-learn's; it stands for the paper's MixMatch, which is made for deep models). Both are scikit-learn's
    logistic regressions on standardised inputs with its default penalty. Raises ValueError that names the field.
    """
    flag("self_training", self_training)
    x, w = np.asarray(view.x, float), np.asarray(view.w, float)
    for row, label in known.items():
        if not 0 <= row < len(x) or label not in (-1, 1):
            fail(f"known[{row}]", repr(label), f"-1 or +1 for a row from 0 to {len(x) - 1}")
    if set(known.values()) != {-1, 1}:
        fail("known", f"labels {sorted(set(known.values()))}", "at least one sample of each class")
    if test_x is not None and np.shape(test_x)[1:] != x.shape[1:]:
        fail("test_x", f"shape {np.shape(test_x)}", f"[n, {x.shape[1]}], the attacker's features")
    test = None if test_x is None else np.asarray(test_x, float)
    rows = np.fromiter(known, int)
    labels = np.fromiter((known[row] for row in known), int)
    outputs = (x @ w)[:, None], None if test is None else (test @ w)[:, None]
    scores, test_scores = _fit(outputs[0], rows, labels, outputs[1], self_training)
    local, test_local = _fit(x, rows, labels, test, self_training)
    return Completion(outputs[0][:, 0], scores, local, test_scores, test_local)


def _fit(
    inputs: np.ndarray, rows: np.ndarray, labels: np.ndarray, test: np.ndarray | None, self_training: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log odds for all inputs [n, d] and for test inputs, of a model fitted to the labels of some rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from sklearn.semi_supervised import SelfTrainingClassifier

    scaler: Any = StandardScaler().fit(inputs)  # by all samples: the attacker has their features
    inputs = scaler.transform(inputs)
    model: Any = LogisticRegression(max_iter=1000)
    if self_training:
        targets = np.full(len(inputs), -1)  # scikit-learn's mark for no label
        targets[rows] = labels > 0
        model = SelfTrainingClassifier(model).fit(inputs, targets)
        model = model.estimator_  # the last of those it trained
    else:
        model.fit(inputs[rows], labels > 0)
    odds = model.decision_function
    return odds(inputs), None if test is None else odds(scaler.transform(test))
