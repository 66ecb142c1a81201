"""Dropout of a train step: masks of integers only, so host, board and NumPy make the same.

An element is kept if the hash of its place, its layer, the step and the seed is large enough. The
hash is the finalizer of MurmurHash3 (Austin Appleby, 2011). Steps and layers are apart by multiples
of 2^32 divided by the golden ratio (Knuth, "The Art of Computer Programming", volume 3, 6.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from utvm_deploy.frontend.relax.operators import (
    operator_name,
    scalar,
    shape_of,
    with_bindings,
    with_body,
)
from utvm_deploy.frontend.relax.rewrites import with_dropouts
from utvm_deploy.frontend.training.optimizers import Emit, Optimizer

_GOLDEN, _FIRST, _SECOND = 0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35
_ALL = 1 << 32
#: The name of the state that counts steps, and where it begins again: float32 has these integers.
STEPS, _MOST_STEPS = "steps", 1 << 24


@dataclass(frozen=True)
class Dropout:
    """What an input is multiplied by: 0 with a probability, otherwise 1 / (1 - probability)."""

    probability: float
    shape: tuple[int, ...]
    layer: int  # counts the dropouts of a model

    def emitted(self, builder: Any, step: Any, seed: int) -> Any:
        """The variable of the mask in Relax; ``step`` is one of float32."""
        # Elements whose hash is below this are dropped.
        threshold = min(round(self.probability * _ALL), _ALL - 1)
        scale = 1.0 / (1.0 - self.probability) if self.probability < 1 else 0.0

        def mask(steps: Any) -> Any:
            def at(*indices: Any) -> Any:
                flat: Any = tirx.const(0, "int64")
                for index, extent in zip(indices, self.shape, strict=True):
                    flat = flat * extent + index
                place = flat.astype("uint32") + _integer(self._key(seed))
                moved = steps().astype("uint32") * _integer(_GOLDEN)
                kept = _hash(_hash(place, _integer) + moved, _integer) >= _integer(threshold)
                return tirx.Select(kept, *(tirx.const(one, "float32") for one in (scale, 0.0)))

            return te.compute([tirx.IntImm("int64", one) for one in self.shape], at, name="mask")

        return builder.emit_te(mask, step, primfunc_name_hint="dropout_mask")

    def _key(self, seed: int) -> int:
        first = np.array([(seed + (self.layer + 1) * _GOLDEN) % _ALL], np.uint32)
        return int(_hash(first, np.uint32)[0])


def _integer(value: int) -> Any:
    return tirx.const(value, "uint32")


def _hash(x: Any, number: Callable[[int], Any]) -> Any:
    """Of uint32, in NumPy or TensorIR; ``number`` makes constants there."""
    x = (x ^ (x >> number(16))) * number(_FIRST)
    x = (x ^ (x >> number(13))) * number(_SECOND)
    return x ^ (x >> number(16))


def counting(optimizer: Optimizer) -> Optimizer:
    """The optimizer with the number of the step as its last shared state."""

    def advance(emit: Emit, shared: Sequence[Any]) -> list[Any]:
        *others, step = shared
        is_last = relax.op.equal(step, scalar(_MOST_STEPS - 1.0))
        after = emit(relax.op.where(is_last, scalar(0.0), relax.op.add(step, scalar(1.0))))
        return [*optimizer.advance(emit, others), after]

    return replace(optimizer, shared=(*optimizer.shared, STEPS), advance=advance)


def with_masks(module: Any, main: str) -> tuple[Any, list[Dropout]]:
    """The module whose dropouts are products with masks, and these dropouts.

    The masks are the last parameters of its function ``main``. Dropouts of probability 0 have none.
    """
    dropouts, masks, layers = list[Dropout](), list[Any](), count()

    def masked(x: Any, rate: float) -> Any:
        shape, layer = shape_of(x), next(layers)
        if not round(rate * _ALL):
            return x
        if rate < 0:  # of whole channels
            shape = (*shape[:2], *(1 for _ in shape[2:]))
        dropouts.append(Dropout(abs(rate), shape, layer))
        masks.append(relax.Var(f"mask_{len(masks)}", relax.TensorType(shape, "float32")))
        return relax.op.multiply(x, masks[-1])

    module = with_dropouts(module, main, masked)
    return with_body(module, main, module[main].body, masks), dropouts


#: What passes put between a mask and its product.
_MOVERS = ("relax.grad.no_grad", "relax.permute_dims", "relax.reshape", "relax.expand_dims")


def without_masks(module: Any, main: str, masks: Sequence[Any]) -> Any:
    """The module in which these parameters multiply nothing.

    Of a product that is found no more, they have to be ones.
    """
    moved, bindings = {*masks}, []
    for binding in module[main].body.blocks[0].bindings:
        value, name = binding.value, operator_name(binding.value)
        if name in _MOVERS and value.args[0] in moved:
            moved.add(binding.var)
        elif name == "relax.multiply" and value.args[1] in moved:
            binding = relax.VarBinding(binding.var, value.args[0])
        bindings.append(binding)
    return with_bindings(module, main, bindings)
