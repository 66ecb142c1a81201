"""A block of a transformer as a .tflite file: attention and two dense layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from float_writer import FloatWriter
from tflite_writer import ModelWriter


@dataclass(frozen=True)
class AttentionNet:
    """What a block has; ``window`` are its tokens, ``width`` is that of each."""

    window: int = 24
    width: int = 32
    heads: int = 2
    #: Heads of K and V: fewer are those of grouped queries.
    shared: int = 2
    mask: str = ""  # "", "rows" (a constant), "columns" (an input), "select" (a condition)
    adj_y: bool = False
    #: Whether V is computed only when the scores are there.
    late: bool = False
    hidden: int = 0  # of the dense layers; 0: there are none
    is_float: bool = False
    blocks: int = 1

    def written(self) -> ModelWriter:
        """The file."""
        m = FloatWriter() if self.is_float else ModelWriter()
        rng = np.random.default_rng(7)
        x = m.input((1, self.window, self.width), 0.05, 3)
        for _ in range(self.blocks):
            x = self._block(m, rng, x)
        m.output(x)
        return m

    def _block(self, m: ModelWriter, rng: np.random.Generator, x: int) -> int:
        def dense(source: int, outputs: int, scale: float) -> int:
            shape = (outputs, m.tensors[source].shape[-1])
            weights = rng.integers(-127, 128, shape, dtype=np.int8)
            bias = rng.integers(-500, 500, outputs)
            if self.is_float:
                weights, bias = weights / 500, bias / 500
            return m.fully_connected(source, weights, bias, keep_num_dims=True, scale=scale)

        q, k = self._heads(m, dense(x, self.width, 0.2)), self._keys(m, dense, x)
        v = 0 if self.late else self._values(m, dense, x)
        depth, groups = self.width // self.heads, self.heads // self.shared
        if groups > 1:
            q = m.reshape(q, (1, self.shared, groups * self.window, depth))
        rows = groups * self.window
        scores = self._product(m, q, k, (1, self.shared, rows, self.window), self.adj_y, 0.4)
        if groups > 1 and self.mask:
            scores = m.reshape(scores, (self.shared, groups, self.window, self.window))
        chances = m.softmax(self._masked(m, scores))
        if groups > 1 and self.mask:
            chances = m.reshape(chances, (1, self.shared, rows, self.window))
        if self.late:
            v = self._values(m, dense, x)
        seen = self._product(m, chances, v, (1, self.shared, rows, depth), False, 0.05)
        if groups > 1:
            seen = m.reshape(seen, (1, self.heads, self.window, depth))
        seen = self._turned(m, seen, (0, 2, 1, 3))
        y = m.add(x, dense(m.reshape(seen, (1, self.window, self.width)), self.width, 0.1))
        if self.hidden:
            wide = m.relu(dense(y, self.hidden, 0.2))
            y = m.add(y, dense(wide, self.width, 0.2))
        return y

    def _heads(self, m: ModelWriter, x: int, heads: int = 0) -> int:
        """Rows of tokens as those of heads."""
        heads = heads or self.heads
        parts = m.reshape(x, (1, self.window, heads, self.width // self.heads))
        return self._turned(m, parts, (0, 2, 1, 3))

    def _keys(self, m: ModelWriter, dense, x: int) -> int:  # type: ignore[no-untyped-def]
        k = self._values(m, dense, x)
        return k if self.adj_y else self._turned(m, k, (0, 1, 3, 2))

    def _values(self, m: ModelWriter, dense, x: int) -> int:  # type: ignore[no-untyped-def]
        width = self.shared * self.width // self.heads
        return self._heads(m, dense(x, width, 0.2), self.shared)

    def _masked(self, m: ModelWriter, scores: int) -> int:
        shape = m.tensors[scores].shape
        earlier = np.tril(np.ones((self.window, self.window), bool))
        if self.mask == "rows":
            hidden = np.where(earlier, 0, -127).astype(np.float32 if self.is_float else np.int8)
            return m.add(scores, m.constant(hidden, None if self.is_float else 0.4), scale=0.4)
        if self.mask == "columns":
            return m.add(scores, m.input((1, 1, 1, self.window), 0.4, 0), scale=0.4)
        if self.mask == "select":
            least = m.constant(np.full((1, 1, 1, 1), -128, np.int8), 0.4, -2)
            inputs = [m.constant(earlier[np.newaxis, np.newaxis]), scores, least]
            same = {"scale": 0.4, "zero_point": -2, "dtype": "int8"}
            return m.node("SELECT_V2", inputs, shape, ("SelectV2Options", {}), **same)
        return scores

    @staticmethod
    def _turned(m: ModelWriter, x: int, order: tuple[int, ...]) -> int:
        shape = tuple(m.tensors[x].shape[axis] for axis in order)
        axes = m.constant(np.array(order, np.int32))
        return m.node("TRANSPOSE", [x, axes], shape, ("TransposeOptions", {}))

    @staticmethod
    def _product(
        m: ModelWriter, a: int, b: int, shape: tuple[int, ...], adj_y: bool, scale: float
    ) -> int:
        options = {"AdjX": False, "AdjY": adj_y}
        is_float = m.tensors[a].dtype == "float32"
        same = {} if is_float else {"scale": scale, "zero_point": -2}
        return m.node("BATCH_MATMUL", [a, b], shape, ("BatchMatMulOptions", options), **same)
