"""Programs are told apart by the classes of their arguments, also where fields and their values are the same."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
import pytest

import jaxfed as jf
from jaxfed import nodes
from jaxfed.nodes import PyTreeNode, field

TWINS = 120


def twins(base):
    """Classes that differ in what `number` returns, and in nothing else."""
    body = {"__annotations__": {"x": float}, "__module__": __name__}
    return [type("Twin", (base,), body | {"number": lambda self, i=i: jnp.int32(i)}) for i in range(TWINS)]


def wrong(jitted, classes):
    """How many of the classes get another's program."""
    return sum(int(jitted(cls(1.0))) != i for i, cls in enumerate(classes))


def test_no_class_gets_the_program_of_another():
    assert wrong(jax.jit(lambda node: node.number()), twins(PyTreeNode)) == 0


def test_nor_with_classes_of_flax_under_our_jit():
    assert wrong(nodes.jit(lambda node: node.number()), twins(flax.struct.PyTreeNode)) == 0


def test_trees_of_two_classes_differ():
    a, b = twins(PyTreeNode)[:2]
    assert jax.tree.structure(a(1.0)) == jax.tree.structure(a(2.0)) != jax.tree.structure(b(1.0))
    methods = jf.VFB2SGD, jf.VFB2SAGA, jf.vertical.LiteralSAGA
    assert len({jax.tree.structure(m(jf.vertical.Objective())) for m in methods}) == 3
    assert jax.tree.structure(jf.VFB2SGD(0.0)) != jax.tree.structure(jf.VFB2SAGA(0.0))


def test_every_node_of_the_package_compares_its_class():
    for module in ("averaging", "horizontal", "models", "steps", "vertical"):
        getattr(jf, module)
    found = flax.struct.PyTreeNode.__subclasses__()
    ours = [cls for cls in found if cls.__module__.startswith("jaxfed.")]
    assert ours == [PyTreeNode]
    assert len(PyTreeNode.__subclasses__()) > 20


class Node(PyTreeNode):
    """A node with all kinds of fields."""

    a: float
    kind: str = field(pytree_node=False, default="one")
    b: float = 2.0


def test_a_node_is_a_frozen_dataclass_and_a_tree():
    node = Node(1.0)
    assert jax.tree.leaves(node) == [1.0, 2.0] and jax.tree.map(lambda x: x + 1, node) == Node(2.0, "one", 3.0)
    assert [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(node)] == [".a", ".b"]
    assert node.replace(kind="two") == Node(1.0, "two") != node
    assert jax.tree.structure(node) != jax.tree.structure(node.replace(kind="two"))
    assert repr(node) == "Node(a=1.0, kind='one', b=2.0)" and isinstance(node, flax.struct.PyTreeNode)
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.a = 3.0
    with pytest.raises(TypeError, match="c"):
        node.replace(c=1)


def test_our_jit_donates_and_counts():
    jitted = nodes.jit(lambda k, x, y: x * k + y, static_argnums=(0,), donate_argnums=(1,))
    x = jnp.ones(3)
    assert jitted(2, x, 1.0).tolist() == [3.0, 3.0, 3.0] and x.is_deleted()
    jitted(2, jnp.ones(3), 2.0)
    assert jitted._cache_size() == 1
    jitted(3, jnp.ones(3), 2.0)
    assert jitted._cache_size() == 2
