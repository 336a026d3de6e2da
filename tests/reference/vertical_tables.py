"""Tables of ticks for q parties and m dominators (see tests.reference.vertical): a checker, and tables to try."""

import numpy as np


class Table:
    """read [T, m, q], complete [T, m], apply [T, m, q], snapshot [T], time [T] (seconds at each tick's end)."""

    def __init__(self, read, complete, apply, snapshot, time):
        self.read, self.complete, self.apply, self.snapshot, self.time = read, complete, apply, snapshot, time


def check_table(table, q, parties=None, epoch_length=None, read_depth=None, message_depth=None, drained=True):
    """Walk through a table and assert that it is a legal schedule; returns the ages of its messages.

    Asserted: shapes; every update that completes was answered exactly once by each of the q parties, in or before its
    tick; no answer or message lost from the rings of `read_depth` and `message_depth` slots that hold them (as deep as
    the table itself needs, by default); each of `parties` (all, by default) applies every message exactly once and the
    others apply none; at a snapshot no message and no answer is under way; time never falls. With epoch_length, a
    snapshot at tick 0 and after every epoch_length completions and nowhere else. With drained, nothing is left to apply
    at the end. Answers for updates that never complete are legal. Raises AssertionError.

    Returns a dict of arrays over the N completed updates in the order of the ticks, within a tick of the dominators:
      update [N, 2]: dominator, and its own number;  complete_tick [N];  read_tick, apply_tick [N, q] (-1: not applied)
      read_age [N, q]: other updates (of any dominator) completed from the read on, before the update's own completion
      message_age [N, q]: updates completed after it and before it is applied (-1: not applied)
    """
    read, complete, apply = np.asarray(table.read), np.asarray(table.complete), np.asarray(table.apply)
    snapshot = np.asarray(table.snapshot)
    num_ticks, m = complete.shape
    assert complete.dtype == bool and snapshot.dtype == bool, "complete, snapshot: wanted bool"
    assert read.shape == apply.shape == (num_ticks, m, q), f"shapes: read {read.shape}, apply {apply.shape}"
    assert snapshot.shape == (num_ticks,), f"shapes: snapshot {snapshot.shape}"
    assert np.min(read, initial=0) >= -1 and np.min(apply, initial=0) >= -1, "read, apply: below -1"
    if getattr(table, "time", None) is not None:
        assert np.shape(table.time) == (num_ticks,) and np.all(np.diff(table.time) >= 0), "time falls"
    answer_slots = 1 + int(np.max(read, initial=0)) if read_depth is None else read_depth
    message_slots = 1 + int(np.max(apply, initial=0)) if message_depth is None else message_depth
    parties = list(range(q)) if parties is None else sorted(parties)

    completed = [0] * m
    total = since = 0  # completions so far; in this epoch
    place = {}  # (a, u) -> its number in the order of completion
    answers = [[[None] * answer_slots for _ in range(q)] for _ in range(m)]  # (update, tick, completions before it)
    messages = [[None] * message_slots for _ in range(m)]  # update
    waiting = {}  # (a, u) -> parties that have yet to apply it
    out = {name: [] for name in ("update", "complete_tick", "read_tick", "apply_tick", "read_age", "message_age")}
    for t in range(num_ticks):
        if epoch_length is not None:
            at_end = since == epoch_length
            assert t > 0 or snapshot[t], "tick 0: no snapshot"
            assert t == 0 or at_end or not snapshot[t], f"tick {t}: snapshot after {since} updates of the epoch"
            assert snapshot[t] or not at_end or np.all(read[t] < 0), f"tick {t}: reads on before the snapshot"
        if snapshot[t]:
            assert not waiting, f"tick {t}: snapshot while {sorted(waiting)} are not applied everywhere"
            for a in range(m):
                under_way = [s for ring in answers[a] for s in ring if s is not None and s[0] >= completed[a]]
                assert not under_way, f"tick {t}: snapshot while dominator {a} waits for answers"
            since = 0

        for a in range(m):
            for party in range(q):
                if read[t, a, party] >= 0:
                    u = completed[a] + int(read[t, a, party])
                    slot = u % answer_slots
                    held = answers[a][party][slot]
                    where = f"tick {t}: party {party} answers for update {u} of dominator {a}"
                    assert u < completed[a] + answer_slots, f"{where}, beyond {answer_slots} slots"
                    assert held is None or held[0] != u, f"{where} a second time"
                    assert held is None or held[0] < completed[a], f"{where} over that for {held and held[0]}"
                    answers[a][party][slot] = (u, t, total)

        for a in range(m):
            if complete[t, a]:
                u = completed[a]
                held = [answers[a][party][u % answer_slots] for party in range(q)]
                for party in range(q):
                    missing = held[party] is None or held[party][0] != u
                    assert not missing, f"tick {t}: update {u} of dominator {a} completes without party {party}"
                lost = messages[a][u % message_slots]
                assert lost is None or (a, lost) not in waiting, (
                    f"tick {t}: update {u} of dominator {a} overwrites {lost}, not applied by {waiting.get((a, lost))}"
                )
                messages[a][u % message_slots] = u
                place[a, u] = total
                if parties:
                    waiting[a, u] = set(parties)
                out["update"].append((a, u))
                out["complete_tick"].append(t)
                out["read_tick"].append([s[1] for s in held])
                out["read_age"].append([total - s[2] for s in held])
                out["apply_tick"].append([-1] * q)
                out["message_age"].append([-1] * q)
                completed[a] += 1
                total, since = total + 1, since + 1
        assert epoch_length is None or since <= epoch_length, f"tick {t}: {since} updates in an epoch of {epoch_length}"

        for a in range(m):
            for party in range(q):
                if apply[t, a, party] >= 0:
                    u = completed[a] - 1 - int(apply[t, a, party])
                    where = f"tick {t}: party {party} applies update {u} of dominator {a}"
                    assert u >= 0, f"{where}: no such update"
                    assert messages[a][u % message_slots] == u, f"{where}, whose message is overwritten"
                    assert party in waiting.get((a, u), ()), f"{where}: not its to apply, or a second time"
                    waiting[a, u].remove(party)
                    if not waiting[a, u]:
                        del waiting[a, u]
                    out["apply_tick"][place[a, u]][party] = t
                    out["message_age"][place[a, u]][party] = total - 1 - place[a, u]
    assert not (drained and waiting), f"the table ends before {sorted(waiting)} are applied everywhere"
    widths = {"update": (2,), "complete_tick": ()}
    return {k: np.array(v, int).reshape(-1, *widths.get(k, (q,))) for k, v in out.items()}


def synchronous_table(q, m, num_ticks, epoch_length=None):
    """All dominators complete one update a tick, read and applied in it. An epoch's last tick may complete fewer."""
    complete = np.ones((num_ticks, m), bool)
    snapshot = np.zeros(num_ticks, bool)
    if epoch_length is not None:
        ticks = -(-epoch_length // m)
        snapshot[::ticks] = True
        complete[ticks - 1 :: ticks, epoch_length - (ticks - 1) * m :] = False
    moves = np.where(complete[:, :, None], 0, -1) * np.ones(q, int)
    return Table(moves.astype(np.int8), complete, moves.astype(np.int8), snapshot, np.arange(1.0, num_ticks + 1))


def random_table(rng, q, m, num_updates, read_depth=1, message_depth=4, epoch_length=None, busy=0.5):
    """A legal, drained table: every event that the depths allow happens in a tick with probability `busy`."""
    completed, answered = np.zeros(m, int), np.zeros((m, q), int)  # answered: number of the next update to read
    unapplied = [[[] for _ in range(q)] for _ in range(m)]
    total, epoch_end, fresh = 0, epoch_length or num_updates, epoch_length is not None
    reads, completes, applies, snapshots = [], [], [], []
    while total < num_updates or any(u for per_party in unapplied for u in per_party):
        idle = not any(u for per_party in unapplied for u in per_party)
        if epoch_length is not None and total == epoch_end and idle and total < num_updates:
            epoch_end, fresh = total + epoch_length, True
        end = min(epoch_end, num_updates)
        read, apply = np.full((m, q), -1, np.int8), np.full((m, q), -1, np.int8)
        complete = np.zeros(m, bool)
        started = np.maximum(np.max(answered, axis=1), completed)
        for a in range(m):
            for party in range(q):
                u = answered[a, party]
                # a new update starts only within the epoch: those started and not completed will complete in it
                room = u < started[a] or total + np.sum(started - completed) < end
                if u < completed[a] + read_depth and room and rng.random() < busy:
                    read[a, party] = u - completed[a]
                    answered[a, party] += 1
                    started[a] = max(started[a], u + 1)
        for a in range(m):
            u = completed[a]
            kept = all(u - old < message_depth for waiting in unapplied[a] for old in waiting)
            if np.all(answered[a] > u) and kept and total < end and rng.random() < busy:
                complete[a] = True
                completed[a] += 1
                total += 1
                for waiting in unapplied[a]:
                    waiting.append(u)
        for a in range(m):
            for party in range(q):
                if unapplied[a][party] and rng.random() < busy:
                    u = unapplied[a][party].pop(rng.integers(len(unapplied[a][party])))
                    apply[a, party] = completed[a] - 1 - u
        reads.append(read), completes.append(complete), applies.append(apply), snapshots.append(fresh)
        fresh = False
    return Table(
        np.array(reads).reshape(-1, m, q),
        np.array(completes).reshape(-1, m),
        np.array(applies).reshape(-1, m, q),
        np.array(snapshots, bool),
        np.arange(1.0, len(reads) + 1),
    )
