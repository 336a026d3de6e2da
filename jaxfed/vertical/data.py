"""Party data: the same rows, cut by columns between parties, some of which hold the labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail, flag
from jaxfed.nodes import PyTreeNode, field
from jaxfed.vertical import blocks as forms
from jaxfed.vertical import reading, tables
from jaxfed.vertical.blocks import Blocks


class Depths(NamedTuple):
    """Room for a schedule's delays: 1 + the furthest read ahead, 1 + the greatest age of a message, in own updates."""

    read: int = 1
    message: int = 1


class PartyData(PyTreeNode):
    """The rows of q parties and their labels. `split` cuts one table into it, `from_blocks` takes one per party.

    The d coordinates of all parties, one party after the other, are the concatenated order; the user's order is that
    of the table given to `split`, or that of the arrays given to `from_blocks`, one after the other.

    blocks: features, `Dense` or `Sparse`. y [n]: -1 and +1 for two classes, else real targets; None for rows without.
    columns int32 [d]: the user's column number of each coordinate. The intercept, if any, counts as one more column
        after the user's last: a column of ones, the last coordinate of the first active party. It is not scaled, and
        regularised like any other coordinate (a departure from usual practice).
    shift, scale float64 [d]: what was subtracted and divided by, or None. Parameters belong to the scaled features.
    present bool [q, n]: which party has which row, or None where each has all. A party without a row adds 0 to its
        score and learns nothing from it: its features there are zero, after scaling. Active parties know all labels.
    active: the parties that hold labels; dominator a is party active[a]. classes: the two labels that -1 and +1 stand
        for, or (). names: the user's columns, where they came in DataFrames. width: the number of the user's columns.
    """

    blocks: Blocks
    y: Any
    columns: Any
    shift: Any
    scale: Any
    present: Any
    active: tuple[int, ...] = field(pytree_node=False)
    classes: tuple = field(pytree_node=False)
    names: tuple | None = field(pytree_node=False)
    intercept: bool = field(pytree_node=False)
    width: int = field(pytree_node=False)
    depths: Depths = field(pytree_node=False, default=Depths())
    watched: bool = field(pytree_node=False, default=False)  # ticks show what is sent: see `exchange`

    def __repr__(self) -> str:
        """Say what there is, without the arrays."""
        form = type(self.blocks).__name__.lower()
        return f"PartyData({self.num_rows} rows, {form} parties of {self.sizes} features, active {self.active})"

    @classmethod
    def from_blocks(
        cls,
        blocks: Sequence[Any],
        y: Any,
        active: Sequence[int] = (0,),
        ids: Sequence[Any] | None = None,
        *,
        how: str = "inner",
        present: Any = None,
        intercept: bool = False,
        scale: str | None = None,
    ) -> "PartyData":
        """Make party data from one array [n, d_l] per party: dense, sparse, a DataFrame, or None for labels only.

        With `ids`, one array per party, rows are aligned (`align`) in the order of the first active party, whose rows
        the labels belong to; how="left" keeps those that other parties lack and fills in `present`. For `present`
        (of the aligned rows), `scale` and `intercept` see `split`. Column names are kept if each block that has
        columns is a DataFrame. Raises ValueError that names the field.
        """
        tables.one_per_party("blocks", blocks)
        if ids is not None:
            tables.one_per_party("ids", ids, len(blocks))
        active = tables.active_parties(active, len(blocks))
        table = tables.side_by_side(blocks, ids, how, active[0], present)
        tables.parties(table.sizes, active, "blocks")
        columns = np.arange(sum(table.sizes))
        return build(table, y, columns, active, table.names, len(columns), ids, intercept=intercept, scale=scale)

    @property
    def num_parties(self) -> int:
        """The number of parties, q."""
        return self.blocks.num_parties

    @property
    def num_rows(self) -> int:
        """The number of rows, n."""
        return self.blocks.num_rows

    @property
    def num_active(self) -> int:
        """The number of active parties, m."""
        return len(self.active)

    @property
    def num_features(self) -> int:
        """The number of coordinates of all parties, d, the intercept included."""
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each party, the intercept included."""
        return self.blocks.sizes

    @property
    def train(self) -> "PartyData":
        """The training rows: themselves. (So algorithms take either this or a pair of training and test rows.)"""
        return self

    def with_parts(self, test: "PartyData | None" = None, validation: "PartyData | None" = None) -> Any:
        """Return these training rows together with test and validation rows of the same parties."""
        from jaxfed.vertical.federation import VerticalData

        return VerticalData(self, test, validation)

    def place(self, depths: Depths | None = None) -> "PartyData":
        """Return what a run needs, on the device: floats in jax's default type, and room for a schedule's delays."""
        real = jnp.result_type(float)
        blocks, y = jax.tree.map(lambda x: _cast(x, real), (self.blocks, self.y))
        bare = dict(columns=None, shift=None, scale=None, present=None, names=None)
        return self.replace(blocks=blocks, y=y, depths=depths or Depths(), **bare)

    def join(self, w: Any) -> np.ndarray:
        """Return parameters in the user's order of columns, NumPy [width], and then the intercept if there is one.

        w: as the blocks have it ([q, d_max] or [d]), or in concatenated order [d]. A column that no party holds gets 0.
        """
        w, mask = np.asarray(w), self.blocks.mask()
        if w.shape not in (mask.shape, (self.num_features,)):
            fail("w", f"shape {w.shape}", f"{mask.shape}" + (f" or ({self.num_features},)" if mask.ndim > 1 else ""))
        out = np.zeros(self.width + self.intercept, w.dtype)
        out[np.asarray(self.columns)] = w[mask] if w.shape == mask.shape else w
        return out

    def split_params(self, w: Any) -> np.ndarray:
        """Return parameters as the blocks have them, NumPy [q, d_max] or [d], from the user's order of columns."""
        w, mask = np.asarray(w), self.blocks.mask()
        if w.shape != (self.width + self.intercept,):
            fail("w", f"shape {w.shape}", f"({self.width + self.intercept},), one number for each column"
                 + (" and the intercept last" if self.intercept else ""))  # fmt: skip
        out = np.zeros(mask.shape, w.dtype)
        out[mask] = w[np.asarray(self.columns)]
        return out

    def like(
        self, x: Any, y: Any = None, ids: Sequence[Any] | None = None, *, how: str = "inner", present: Any = None
    ) -> "PartyData":
        """Return new rows under the same split, scaling and classes; y stays None for rows without labels.

        x: one table with the columns that were split, or a list of blocks, as `from_blocks` takes them. DataFrames are
        read by their column names where those are known. Raises ValueError that names the field.
        """
        first = self.active[0]
        ones = first if self.intercept else None
        sizes = tuple(size - (party == ones) for party, size in enumerate(self.sizes))
        columns = np.asarray(self.columns)
        columns = columns[columns < self.width]
        if isinstance(x, (list, tuple)):
            tables.one_per_party("blocks", x, self.num_parties)
            if ids is not None:
                tables.one_per_party("ids", ids, self.num_parties)
            names = None if self.names is None else np.split(_array(self.names)[columns], np.cumsum(sizes)[:-1])
            table = tables.side_by_side(x, ids, how, first, present, names)
            if table.sizes != sizes:
                fail("blocks", f"{table.sizes} columns", f"{sizes}, as the split has")
        elif ids is not None:
            fail("ids", "ids for one table", "ids with a list of blocks")
        else:
            x, _ = reading.table(reading.order(x, self.names, "x"), "x")
            if x.shape[1] != self.width:
                fail("x", f"{x.shape[1]} columns", f"{self.width}, as the split has")
            table = tables.cut(x, columns, sizes, self.names, present)
        table = tables.in_form(table, isinstance(self.blocks, forms.Sparse))
        y = None if y is None else reading.targets(y, _labelled(table, ids, first), self.classes)
        placed = tables.place(table, ones, fitted=(self.shift, self.scale))
        return self.replace(blocks=placed.blocks, y=_rows(y, table), present=placed.present)

    def joined(self) -> "PartyData":
        """Return one party that holds all columns in the user's order: the data of the centralised baseline."""
        order = np.argsort(np.asarray(self.columns))
        columns, shift, scale = (None if a is None else np.asarray(a)[order]
                                 for a in (self.columns, self.shift, self.scale))  # fmt: skip
        blocks = tables.pad(forms.matrix(self.blocks)[:, order], (len(order),))
        return self.replace(blocks=blocks, columns=columns, shift=shift, scale=scale, present=None, active=(0,))


def build(
    table: tables.Table,
    y: Any,
    columns: np.ndarray,
    active: tuple[int, ...],
    names: tuple | None,
    width: int,
    ids: Sequence[Any] | None = None,
    *,
    intercept: bool,
    scale: str | None,
) -> PartyData:
    """Return party data of training rows: labels read, scaling fitted, the intercept's column number put in."""
    flag("intercept", intercept)
    y, classes = reading.labels(y, _labelled(table, ids, active[0]))
    placed = tables.place(table, active[0] if intercept else None, scale)
    if intercept:
        columns = np.insert(columns, int(np.cumsum(table.sizes)[active[0]]), width)
    return PartyData(placed.blocks, _rows(y, table), columns.astype(np.int32), placed.shift, placed.scale,
                     placed.present, active, classes, names, bool(intercept), width)  # fmt: skip


def _cast(x: Any, real: Any) -> Any:
    """Return an array on the device, floats as `real`; ValueError for numbers that this can't hold."""
    if not np.issubdtype(x.dtype, np.floating):
        return jnp.asarray(x)
    largest = np.finfo(real).max
    if np.finfo(x.dtype).max > largest and x.size and (most := np.abs(x).max()) > largest:
        fail("data", f"the number {most:g}", f"at most {largest:.3g}, which {real} holds")
    return jnp.asarray(x, real)


def _labelled(table: tables.Table, ids: Sequence[Any] | None, first: int) -> int:
    """Return how many labels there must be: one for each row that the first active party gave."""
    return table.x.shape[0] if ids is None else len(ids[first])


def _rows(y: np.ndarray | None, table: tables.Table) -> Any:
    """Return labels in the order of the table's rows."""
    return y if y is None or table.rows is None else y[table.rows]


def _array(names: tuple) -> np.ndarray:
    """Return names as an array of objects [d], whatever they are."""
    out = np.empty(len(names), object)
    out[:] = names
    return out
