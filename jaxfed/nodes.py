"""PyTreeNode, and a jit that tells classes apart: why two algorithms never get each other's compiled program.

jax (0.10.2, `PyTreeDef::operator==` in jaxlib) compares nodes of `jax.tree_util.register_dataclass`, which
`flax.struct` uses, by their static fields and not by their class. Two classes with the same number of fields are then
told apart by their hash alone, and where hashes share a bucket (about one pair in a thousand) `jax.jit` silently runs
the program that was compiled for the other class: `tests/test_nodes.py` shows it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
from flax.struct import field

__all__ = ["PyTreeNode", "field", "jit", "node_types"]


class PyTreeNode(flax.struct.PyTreeNode):
    """A frozen dataclass that is a pytree, as flax's, registered so that jax compares its class too.

    `field(pytree_node=False)` makes a field static.
    """

    def __init_subclass__(cls, **kwargs: Any):
        dataclasses.dataclass(frozen=True, **kwargs)(cls)
        by_kind: dict[bool, list[str]] = {True: [], False: []}
        for f in dataclasses.fields(cls):
            by_kind[f.metadata.get("pytree_node", True)].append(f.name)
        leaves, static = by_kind[True], by_kind[False]

        def flatten(node):
            return [getattr(node, name) for name in leaves], tuple(getattr(node, name) for name in static)

        def flatten_with_keys(node):
            children, aux = flatten(node)
            return list(zip(map(jax.tree_util.GetAttrKey, leaves), children, strict=True)), aux

        def unflatten(aux, children):
            return cls(**dict(zip(leaves, children, strict=True)), **dict(zip(static, aux, strict=True)))

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def node_types(tree: Any) -> tuple:
    """Return the classes of all nodes of a pytree, in order."""

    def walk(definition):
        data = definition.node_data()
        yield data and data[0]
        for child in definition.children():
            yield from walk(child)

    return tuple(walk(jax.tree.structure(tree)))


def jit(fn: Callable, static_argnums: tuple[int, ...] = (), donate_argnums: tuple[int, ...] = ()) -> Any:
    """Return `jax.jit` of a function of positional arguments, with a program for each class of their nodes.

    For classes that users register by `flax.struct` or `register_dataclass`.
    """
    static, donated = (0, *(i + 1 for i in static_argnums)), tuple(i + 1 for i in donate_argnums)

    def apart(types, *args):
        return fn(*args)

    apart.__name__ = apart.__qualname__ = fn.__name__  # what profilers and logs call the program
    compiled: Any = jax.jit(apart, static_argnums=static, donate_argnums=donated)

    def call(*args: Any) -> Any:
        return compiled(node_types(args), *args)

    call._cache_size = compiled._cache_size
    call.lower = lambda *args: compiled.lower(node_types(args), *args)
    return call
