"""The attack matrix: verdicts, the table and its file; every attack's rows, and that a broken attack is told."""

import dataclasses
import json
import math

import numpy as np
import pytest

from jaxfed.privacy import gram, label_metrics, labels, matrix, matrix_features, matrix_labels, residue, unmask
from jaxfed.privacy.matrix import Row
from jaxfed.privacy.runs import Runs
from jaxfed.vertical import VFB2SGD, BilevelAsync, Epochs, Objective, SecureAggregation, split

INF, NAN = math.inf, math.nan
AS, DIFFERS, REPORTED, NOT_MADE = "as expected", "differs", "reported", "not made"


def row(measured=0.5, control=0.5, expected=None, chance=None):
    return Row("sign", "passive party 3", "|theta|", "accuracy", measured, control, "shuffled", expected, chance)


@pytest.mark.parametrize(
    ("verdict", "measured", "control", "expected", "chance"),
    [
        (REPORTED, 0.5, 0.5, None, None),
        (REPORTED, 0.5, NAN, None, None),
        (NOT_MADE, NAN, NAN, None, None),
        (AS, 1.0, NAN, (1.0, 1.0), None),  # the ends belong to a range; nothing is claimed of the control
        (AS, 0.4, 0.6, (0.4, 1.0), (0.4, 0.6)),
        (DIFFERS, np.nextafter(0.4, 0), 0.5, (0.4, 1.0), (0.4, 0.6)),
        (DIFFERS, 1.0, np.nextafter(0.6, 1), (0.4, 1.0), (0.4, 0.6)),
        (DIFFERS, 0.5, 0.7, None, (0.4, 0.6)),
        (DIFFERS, NAN, 0.5, (0.0, 1.0), (0.0, 1.0)),
        (DIFFERS, 0.5, NAN, (0.0, 1.0), (0.0, 1.0)),
        (DIFFERS, 0.5, 0.5, (NAN, NAN), None),
        (AS, 1e9, -1e9, (0.5, INF), (-INF, 0.5)),
        (DIFFERS, INF, 0.5, (0.0, 1e-3), None),
        (AS, INF, 0.5, (0.5, INF), None),  # an error without bound is one of at least a half
    ],
)
def test_verdicts(verdict, measured, control, expected, chance):
    assert row(measured, control, expected, chance).verdict == verdict


def test_the_table_has_a_cell_for_each_column():
    rows = [row(0.0001234, NAN, (0.0, 1e-6), (-INF, 0.5)), row(1.0, INF, (1.0, 1.0), (0.5, INF)), row(),
            matrix.not_made("gram", "x: got | and |, wanted |")]  # fmt: skip
    lines = matrix.table(rows).splitlines()
    cells = [[cell.strip() for cell in line.replace("\\|", "!").strip("|").split("|")] for line in lines]
    assert {len(line) for line in cells} == {9} and len({len(line) for line in lines}) == 1
    assert cells[2] == ["sign", "passive party 3", "!theta!", "accuracy", "1.2e-04", "0.000 to 1.0e-06",
                        "nan (shuffled)", "at most 0.500", DIFFERS]  # fmt: skip
    assert cells[3][4:] == ["1.000", "1.000", "inf (shuffled)", "at least 0.500", AS]
    assert cells[4][5:] == ["", "0.500 (shuffled)", "", REPORTED]
    assert cells[5][0] == "gram" and cells[5][3] == "x: got ! and !, wanted !" and cells[5][-1] == NOT_MADE


def test_the_file_is_json_whatever_the_numbers_are(tmp_path):
    rows = [row(np.float32(0.25), INF, (0, INF), None), row(NAN, 0.5, (np.float64(1), 1.0), (0.4, 0.6))]
    matrix.save(rows, tmp_path / "a.json", {"title": "t", "options": {"lr": (0.1, None)}})
    text = (tmp_path / "a.json").read_text()
    held = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert held["run"] == {"title": "t", "options": {"lr": [0.1, None]}}
    first, second = held["attacks"]
    assert (first["measured"], first["control"], first["expected"], first["chance"]) == (0.25, None, [0, None], None)
    assert (second["measured"], second["verdict"], second["expected"]) == (None, DIFFERS, [1, 1])
    assert set(first) == {*Row._fields, "verdict"}


def runs(seed=0, n=60, q=4, active=2, d=8, intercept=0.4, **options):
    """Return runs of four parties with two normal classes, of which `intercept` moves one."""
    rng = np.random.default_rng((seed, 9))
    x = rng.normal(size=(n, d)).astype(np.float32)
    y = np.where(x @ rng.normal(size=d) + 0.7 * rng.normal(size=n) + intercept > 0, 1, -1)
    party = split(x, y, q, active, seed)
    algorithm = VFB2SGD(Objective("logistic", "l2", 1e-3), lr=0.1, secure=SecureAggregation())
    fields = {"algorithm": algorithm, "scheduler": BilevelAsync(party), "num_rounds": Epochs(10), "known": 12}
    return Runs(seed=seed, train=party, test=None, attacker=q - 1, **fields | options)


@pytest.fixture(scope="module")
def some():
    return runs()


@pytest.fixture(scope="module")
def other():
    return runs(1)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(matrix_labels, "NOISE_EPOCHS", 40)
    monkeypatch.setattr(matrix_features, "FEW", 10)
    monkeypatch.setattr(matrix_features, "FEW_EPOCHS", 250)


def verdicts(rows):
    return [each.verdict for each in rows]


MADE = {
    "sign": [AS, AS],
    "clusters": [AS],
    "logits": [AS],
    "hint": [AS],
    "response": [AS],
    "start": [AS, AS],
    "completion": [AS, AS],
    "residue": [AS, AS],
    "equality": [AS, REPORTED],
    "unmasking": [AS, AS, REPORTED, REPORTED],
}


@pytest.mark.parametrize("name", MADE)
def test_attacks_get_what_is_expected(some, name):
    rows = (matrix_labels.ATTACKS | matrix_features.ATTACKS)[name](some)
    assert verdicts(rows) == MADE[name], matrix.table(rows)


def test_every_attack_is_tested_here():
    assert {*MADE, "norm", "noise", "gram", "passes"} == set(matrix_labels.ATTACKS | matrix_features.ATTACKS)


def guessing(n, rows):
    """Return what an attack that guesses at random says."""
    each = np.random.default_rng(5).normal(size=len(rows))
    return labels.gather(n, rows, each)


BROKEN = {
    "sign": ("by_sign", labels),
    "clusters": ("by_clusters", labels),
    "hint": ("by_hint", labels),
    "response": ("by_sign", labels),
}


@pytest.mark.parametrize("name", BROKEN)
def test_label_attacks_that_guess_differ(some, name, monkeypatch):
    what, where = BROKEN[name]
    monkeypatch.setattr(where, what, lambda view, *_, **__: guessing(len(view.x), view.rows.ravel()))
    assert set(verdicts(matrix_labels.ATTACKS[name](some))) == {DIFFERS}


def test_labels_that_are_not_the_true_ones_differ(some, monkeypatch):
    y = np.asarray(some.relabelled.y)
    monkeypatch.setattr(Runs, "labels", property(lambda _: y))
    rows = [each for name in ("sign", "hint") for each in matrix_labels.ATTACKS[name](some)]
    assert set(verdicts(rows)) == {DIFFERS}


def test_a_broken_inversion_and_residue_differ(some, monkeypatch):
    logits, residues = matrix_labels.inversion.logits, residue.residue
    starts = matrix_labels.inversion.at_start
    shift = lambda found: found._replace(z=found.z + 1e-3)  # noqa: E731
    monkeypatch.setattr(matrix_labels.inversion, "logits", lambda *a, **k: shift(logits(*a, **k)))
    assert verdicts(matrix_labels.logits(some)) == [DIFFERS]
    monkeypatch.setattr(
        matrix_labels.inversion, "at_start", lambda view: starts(view)._replace(values=-starts(view).values)
    )
    assert verdicts(matrix_labels.start(some)) == [DIFFERS, DIFFERS]

    def wrong(view):
        found = residues(view)
        return found._replace(guesses=guessing(len(view.x), found.guesses.rows))

    monkeypatch.setattr(residue, "residue", wrong)
    rows = matrix_labels.batches(some)
    assert rows[0].verdict == DIFFERS and 0.35 < rows[0].measured < 0.65


def test_completion_by_a_local_model_differs(some, monkeypatch):
    """The metric is what the own block's output ranks: scores that are not of it are told."""
    complete = matrix_labels.completion.complete

    def wrong(view, known):
        found = complete(view, known)
        return found._replace(scores=np.random.default_rng(3).permutation(found.scores))

    monkeypatch.setattr(matrix_labels.completion, "complete", wrong)
    assert DIFFERS in verdicts(matrix_labels.complete(some))


def test_broken_feature_attacks_differ(some, monkeypatch):
    solve, unmasked = matrix_features.features.solve, unmask.unmask
    monkeypatch.setattr(
        matrix_features.features, "solve", lambda *a: solve(*a)._replace(features=solve(*a).features + 0.01)
    )
    assert matrix_features.equality(some)[0].verdict == DIFFERS
    monkeypatch.setattr(
        unmask, "unmask", lambda view: tuple(u._replace(estimates=u.estimates + 1) for u in unmasked(view))
    )
    rows = matrix_features.unmasking(some)
    assert rows[0].verdict == DIFFERS and [each.measured for each in rows] == [0, 0, 0, 0]
    assert rows[2].control > 0  # what the rank test foretells, which the broken attack misses


def test_trees_that_leak_are_told(some):
    from jaxfed.vertical.aggregation import star

    stars = tuple((star(a, 4), star(a, 4)) for a in (0, 1))
    leaky = runs(algorithm=some.algorithm.replace(secure=SecureAggregation(trees=stars)))
    rows = matrix_features.unmasking(leaky)
    assert (rows[0].measured, rows[0].control, rows[0].verdict) == (1, 1, DIFFERS)
    # each root finds all three others in its own half of the updates; the two passive parties find nobody
    assert rows[1].control == pytest.approx(2 * 0.5 / 4) and rows[1].measured == pytest.approx(
        rows[1].control, abs=0.01
    )


def test_the_rank_test_and_the_attack_agree_on_any_coalition(some):
    for each in matrix_features.unmasking(some)[1:]:
        assert each.measured == pytest.approx(each.control, abs=0.01)


def test_a_run_that_hides_labels_differs(some):
    """The claims are on plain runs: under a defence that works the sign attack must not be as expected."""
    from jaxfed.privacy.defences import Gaussian, RandomisedResponse

    for defence in (Gaussian(3.0), RandomisedResponse(0.5)):
        hidden = runs(algorithm=some.algorithm.replace(defence=defence))
        rows = matrix_labels.sign(hidden)
        assert verdicts(rows) == [DIFFERS, DIFFERS] and rows[0].measured < 0.9
    assert matrix_labels.response(hidden)[0].verdict == AS  # its control has no defence, whatever the run has


def test_no_number_is_a_constant(some, other):
    """Numbers that hang on the run are others on other data: controls of each attack, and most that are measured."""
    for name in ("sign", "logits", "hint", "response", "completion", "residue"):
        one, two = (matrix_labels.ATTACKS[name](each)[-1] for each in (some, other))
        assert (one.control, one.measured) != (two.control, two.measured), name
    one, two = (matrix_features.equality(each)[1] for each in (some, other))
    assert one.measured != two.measured and one.control != two.control


def test_balanced_labels_name_no_cluster(some):
    """With as many positives as negatives the prior says nothing; one known positive does."""
    y = np.where(np.arange(60) % 2 == 0, 1, -1)
    balanced = runs()
    balanced = dataclasses.replace(balanced, train=balanced.train.replace(y=y))
    (row,) = matrix_labels.clusters(balanced)
    assert row.needs == "one positive" and row.measured == 1 and row.verdict == AS
    assert matrix_labels.clusters(some)[0].needs.startswith("the share of positives")


def test_the_known_positive_is_one_that_was_seen(some):
    early = runs(window=(0, 2))
    (known,) = early.some_labels(positives_only=True)
    assert known in early.plain.rows and early.labels[known] == 1
    negative = runs(window=(0, 2))
    y = np.array(negative.labels)
    y[np.unique(negative.plain.rows)] = -1
    negative = dataclasses.replace(negative, train=negative.train.replace(y=y))
    with pytest.raises(ValueError, match="window: got . samples, all negative, wanted one positive"):
        matrix_labels.hint(negative)


def test_odd_sizes():
    two = runs(q=2, active=1, d=2)
    stars, alone = matrix_features.unmasking(two)
    assert (stars.measured, stars.control, stars.verdict) == (1, 1, AS)  # two cannot hide from each other
    assert alone.measured == pytest.approx(0.5, abs=0.01) and alone.control == pytest.approx(0.5)
    (wide,) = matrix_features.equality(two)  # one column is left to the active party, and none for four hidden ones
    assert wide.verdict == AS
    (many,) = matrix_labels.batches(two)  # own features 1: a minibatch of one row hides nothing
    assert "b = 8" in many.needs
    three = runs(q=3, active=1, d=3)
    assert len(matrix_features.unmasking(three)) == 3 and verdicts(matrix_features.equality(three)) == [AS]


def test_accuracy_is_of_the_model_at_the_windows_end(some):
    early = runs(window=(0, 30))
    assert early.plain.state is None
    x = np.concatenate([early.plain.view(p).x for p in range(4)], 1)
    w = np.concatenate([early.plain.view(p).w for p in range(4)])
    assert early.accuracy(early.plain) == np.mean((x @ w > 0) == (early.labels > 0))
    scores = np.asarray(some.algorithm.predict(some.plain.state, some.train.place()))
    assert some.accuracy(some.plain) == np.mean((scores > 0) == (some.labels > 0)) > early.accuracy(early.plain)


@pytest.mark.slow
def test_attacks_that_need_longer_runs(some, monkeypatch):
    rare = runs(n=400, intercept=0.0)
    noise, norm = matrix_labels.noise(rare), matrix_labels.norm(rare)
    assert verdicts(noise) == [AS] * 4 and verdicts(norm) == [AS] * 2, matrix.table([*noise, *norm])
    assert noise[3].measured > noise[2].measured + 0.1  # many messages tell more than one
    rows = [*matrix_features.inner_products(some), *matrix_features.reference_points(some)]
    assert set(verdicts(rows)) == {AS}, matrix.table(rows)
    attack, passes = gram.attack, gram.from_passes
    monkeypatch.setattr(gram, "attack", lambda *a, **k: attack(*a, **k)._replace(gram=np.roll(attack(*a, **k).gram, 1)))
    monkeypatch.setattr(gram, "from_passes", lambda *a, **k: passes(*a, **k)._replace(gram=np.eye(60)))
    rows = [*matrix_features.inner_products(some), *matrix_features.reference_points(some)]
    rows = [each for each in rows if "share" not in each.metric]  # a broken solution does not change what is determined
    assert len(rows) == 5 and set(verdicts(rows)) == {DIFFERS}, matrix.table(rows)
    monkeypatch.setattr(labels, "by_norm", lambda view, **_: guessing(len(view.x), view.rows.ravel()))
    assert matrix_labels.norm(rare)[1].verdict == DIFFERS
    assert label_metrics.auc(rare.labels, np.zeros(400)) == 0.5
