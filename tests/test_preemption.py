"""SIGTERM and Ctrl-C with a folder for checkpoints, in Python and on the command line: the same call goes on."""

import signal
import warnings

import pytest

import jaxfed as jf
from jaxfed import interrupts, progress, resume, runner
from jaxfed.cli import main
from tests import test_run
from tests.test_checkpoint import assert_same, vertical


@pytest.fixture
def press(monkeypatch):
    """press(signal, n): the signal comes while the n-th call of the device is being made."""

    def at(number, count):
        enter, calls = progress.Pace.__enter__, []

        def signalled(self):
            calls.append(enter(self))
            if len(calls) == count:
                signal.raise_signal(number)

        monkeypatch.setattr(progress.Pace, "__enter__", signalled)

    return at


@pytest.mark.parametrize("run, now", [(test_run.run, 3), (vertical, 4)], ids=["horizontal", "vertical"])
def test_sigterm_keeps_the_round_at_hand_and_exits_with_75(run, now, press, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    press(signal.SIGTERM, 2)
    with pytest.warns(UserWarning, match=f"preempted: round {now} is kept in"), pytest.raises(SystemExit) as end:
        run(checkpoint=tmp_path, chunk=2)
    assert end.type is interrupts.Preempted and end.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before
    assert resume.Keeper(tmp_path, 0)._read("checkpoint.pkl")[0]["now"] == now
    monkeypatch.undo()
    assert_same(run(checkpoint=tmp_path), run())


def test_sigterm_is_left_alone_without_a_checkpoint(monkeypatch):
    seen = []
    monkeypatch.setattr(progress.Pace, "__exit__", lambda *_: seen.append(signal.getsignal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM)
    test_run.run()
    assert set(seen) == {before}


def test_nested_blocks_give_back_what_was_there():
    """An outer block for Ctrl-C only, an inner one for SIGTERM too; a second SIGTERM changes nothing."""
    before = signal.getsignal(signal.SIGTERM)
    with interrupts.deferred() as outer:
        with interrupts.deferred(preemption=True) as inner:
            assert inner is outer
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert outer.is_set() and outer.preempted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("chunk", [7, 20])
def test_ctrl_c_returns_what_is_finished_and_the_same_call_goes_on(chunk, press, tmp_path, monkeypatch):
    """In mid-window and at a window's end: what is returned is drained, what is kept is not."""
    press(signal.SIGINT, 2)
    with pytest.warns(UserWarning, match=r"interrupted: returning the first .* \(the same call goes on from"):
        out = vertical(chunk=chunk, checkpoint=tmp_path)
    assert out.dataset["round"].values.tolist()[-1] == 2 * chunk
    monkeypatch.undo()
    assert_same(vertical(checkpoint=tmp_path), vertical())


def test_ctrl_c_between_windows_loses_no_message(monkeypatch):
    """One that comes while a record is shown: what is on its way is drained after one more call."""
    headline = runner.headline

    def show(*arguments):
        headline(*arguments)
        signal.raise_signal(signal.SIGINT) if not shown else None
        shown.append(1)

    shown = []
    monkeypatch.setattr(runner, "headline", show)
    with pytest.warns(UserWarning, match="interrupted"):
        ds = vertical(chunk=5).dataset
    assert ds["round"].values.tolist() == [0, 20, 25]
    assert ds.dominated_updates[-1] * 4 == ds.block_updates[-1]


# the command line

LINE = "apfl --adaptive --dataset digits --num-clients 8 --data-seed 3 --devices 1 --rounds 12 --every 4 --quiet"


def command(*more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main([*LINE.split(), *map(str, more)])


def test_the_same_command_goes_on(press, tmp_path, monkeypatch, capsys):
    """After SIGTERM, then after Ctrl-C, which has saved what was finished; and once more at the end."""
    words = ("--out", tmp_path / "out", "--checkpoint", tmp_path / "kept", "--checkpoint-seconds", "0")
    assert command("--out", tmp_path / "whole") == 0
    press(signal.SIGTERM, 2)
    assert command(*words) == 75
    assert not list((tmp_path / "out").iterdir())
    monkeypatch.undo()
    press(signal.SIGINT, 1)
    assert command(*words) == 130
    assert jf.load(tmp_path / "out").dataset["round"][-1] < 12
    monkeypatch.undo()
    for _ in range(2):
        assert command(*words) == 0
        assert_same(jf.load(tmp_path / "out"), jf.load(tmp_path / "whole"))
    assert command(*words, "--lr", "0.3") == 2
    assert "algorithm.lr 0.1 (here 0.3), wanted the same settings" in capsys.readouterr().err
    assert command("--out", tmp_path / "whole", *words[2:]) == 2  # another's results


def test_sigterm_without_a_checkpoint_saves_what_is_finished(press, tmp_path):
    press(signal.SIGTERM, 2)
    assert command("--out", tmp_path / "out") == 143
    run = jf.load(tmp_path / "out")
    assert 0 < int(run.dataset["round"][-1]) == int(run.state.server.round) < 12
