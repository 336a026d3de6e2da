"""How long Algorithm 1 takes: sums over two trees at once, each message after those that it has to wait for."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxfed.vertical.aggregation import Pair, edges, leaves


class Hops(NamedTuple):
    """The messages (sender, receiver) of T1 and T2, in an order in which they can be sent, and the root."""

    first: tuple[tuple[int, int], ...]
    second: tuple[tuple[int, int], ...]
    root: int


def hops(pair: Pair) -> Hops:
    """Return the messages of a pair of trees."""
    first, second = (tuple((edge.sender, edge.receiver) for edge in edges(tree)) for tree in pair)
    return Hops(first, second, leaves(pair[0])[0])


def end(
    hops: Hops, asked: Sequence, answered: Sequence, link1: Sequence, link2: Sequence, later: Callable[..., Any] = max
) -> Any:
    """Return when the root has both sums, in seconds.

    One entry a party, a float or an array: asked, when its mask is ready, that is when the request came in; answered,
    when its masked product is; link1 and link2, how long its message takes over T1 and T2. later: `max` of two entries.
    """
    products, masks = list(answered), list(asked)
    for sender, receiver in hops.first:
        products[receiver] = later(products[receiver], products[sender] + link1[sender])
    for sender, receiver in hops.second:
        masks[receiver] = later(masks[receiver], masks[sender] + link2[sender])
    return later(products[hops.root], masks[hops.root])
