"""Secure aggregation message by message (Zhang et al. 2021, Algorithm 1, steps 2 to 5), and how long it takes.

A pair of trees is (T1, T2), nested tuples whose leaves are the parties 0 to q - 1, each once. The holder of a subtree
is its first leaf. Over T1 masked products o + delta are summed, over T2 masks delta; the root of both takes the
difference.

A party holds a chain of nested subtrees, from its own leaf outwards. It adds the sums of their other branches to its
own number, those of the innermost subtree first and within a subtree from left to right. Once it has them all it sends
its sum to the holder of the subtree of which its chain is a branch.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np


class Message(NamedTuple):
    sender: int
    receiver: int
    leaves: tuple  # the parties whose numbers were added up, sorted
    value: object  # a NumPy scalar, or an int modulo 2^bits


class Aggregation(NamedTuple):
    masked: list  # messages of T1, in the order of sending
    masks: list  # those of T2
    masked_sum: object  # the paper's xi_1
    mask_sum: object  # xi_2
    result: object  # xi_1 - xi_2, which should be the sum of the products; decoded where numbers are integers


def neighbours(tree):
    """(parent, children): the party that each one sends to (None for the root), and from which ones it receives, in the
    order of addition."""
    parent, children, chains = {}, {}, [(tree, None)]
    while chains:
        held, receiver = chains.pop()
        others = []
        while isinstance(held, tuple):
            others.insert(0, held[1:])
            held = held[0]
        if held in parent:
            raise ValueError(f"tree: got party {held} twice, wanted each once")
        branches = [branch for subtree in others for branch in subtree]
        parent[held], children[held] = receiver, [first(branch) for branch in branches]
        chains += [(branch, held) for branch in branches]
    return parent, children


def first(tree):
    """The first leaf: the holder."""
    while isinstance(tree, tuple):
        tree = tree[0]
    return tree


def tree_sum(tree, numbers, add):
    """(the root's sum, every message) of one tree over numbers [q]: round after round, all who have everything send."""
    parent, children = neighbours(tree)
    if sorted(parent) != list(range(len(numbers))):
        raise ValueError(f"tree: got the parties {sorted(parent)}, wanted 0 to {len(numbers) - 1}")
    inbox, messages, waiting, total = {p: {} for p in parent}, [], list(parent), None
    while waiting:
        ready = [p for p in waiting if len(inbox[p]) == len(children[p])]
        for party in ready:
            value, leaves = numbers[party], {party}
            for child in children[party]:
                value = add(value, inbox[party][child].value)
                leaves.update(inbox[party][child].leaves)
            if parent[party] is None:
                total = value
            else:
                message = Message(party, parent[party], tuple(sorted(leaves)), value)
                inbox[parent[party]][party] = message
                messages.append(message)
        waiting = [p for p in waiting if p not in ready]
    return total, messages


def roots(pair):
    if first(pair[0]) != first(pair[1]):
        raise ValueError(f"pair: got the roots {first(pair[0])} and {first(pair[1])}, wanted one, the dominator")


def float_sum(pair, products, masks, dtype=np.float64):
    """Algorithm 1 in float arithmetic of that type: products o [q], masks delta [q]."""
    roots(pair)
    o, delta = ([dtype(number) for number in numbers] for numbers in (products, masks))
    masked = [a + b for a, b in zip(o, delta, strict=True)]
    add = lambda a, b: a + b  # noqa: E731
    masked_sum, over_first = tree_sum(pair[0], masked, add)
    mask_sum, over_second = tree_sum(pair[1], delta, add)
    return Aggregation(over_first, over_second, masked_sum, mask_sum, masked_sum - mask_sum)


def fixed_sum(pair, products, masks, bits, fraction_bits):
    """Algorithm 1 in integers modulo 2^bits: products o [q], floats; masks [q], ints from 0 to 2^bits - 1.

    The result is exact, a Fraction. Raises OverflowError for products out of range, see `encode`.
    """
    roots(pair)
    modulus, q = 2**bits, len(products)
    if any(not 0 <= int(mask) < modulus for mask in masks):
        raise ValueError(f"masks: got {masks}, wanted integers from 0 to 2^{bits} - 1")
    delta = [int(mask) for mask in masks]
    masked = [(encode(o, bits, fraction_bits, q) + d) % modulus for o, d in zip(products, delta, strict=True)]
    add = lambda a, b: (a + b) % modulus  # noqa: E731
    masked_sum, over_first = tree_sum(pair[0], masked, add)
    mask_sum, over_second = tree_sum(pair[1], delta, add)
    result = decode((masked_sum - mask_sum) % modulus, bits, fraction_bits)
    return Aggregation(over_first, over_second, masked_sum, mask_sum, result)


def encode(o, bits, fraction_bits, num_parties):
    """o 2^fraction_bits, rounded half to even, as an integer modulo 2^bits in two's complement.

    Raises OverflowError unless |o| 2^fraction_bits q < 2^(bits - 1), before and after rounding: then no sum of q of
    them leaves the range of signed integers.
    """
    if not np.isfinite(o):
        raise OverflowError(f"product: got {o}, wanted a finite number")
    scaled = Fraction(float(o)) * Fraction(2) ** fraction_bits
    number = round(scaled)  # of a Fraction: exact, half to even
    if max(abs(scaled), abs(number)) * num_parties >= 2 ** (bits - 1):
        raise OverflowError(f"product: got {o}, wanted |o| 2^{fraction_bits} {num_parties} below 2^{bits - 1}")
    return number % 2**bits


def decode(number, bits, fraction_bits):
    """The Fraction that an integer modulo 2^bits stands for."""
    signed = number - 2**bits if number >= 2 ** (bits - 1) else number
    return Fraction(signed) / Fraction(2) ** fraction_bits


def aggregation_time(pair, start, link1, link2, begin=None):
    """When the root has both sums.

    start [q]: when each party's masked product is ready; begin [q]: when its mask is (None: with the product). link1,
    link2 [q]: how long a message from each party takes in T1 and in T2. A party sends when its own number is ready and
    all sums of its children have come in.
    """
    roots(pair)
    ends = []
    for tree, ready, link in ((pair[0], start, link1), (pair[1], start if begin is None else begin, link2)):
        parent, children = neighbours(tree)
        arrival = {}  # of each party's message
        while len(arrival) < len(parent):
            for party in parent:
                if party not in arrival and all(child in arrival for child in children[party]):
                    done = max([ready[party], *(arrival[child] for child in children[party])])
                    arrival[party] = done if parent[party] is None else done + link[party]
        ends.append(arrival[first(tree)])
    return max(ends)
