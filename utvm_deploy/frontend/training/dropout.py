"""Dropout of a train step: masks of integers only, so host, board and NumPy make the same.

An element is kept if the hash of its place, its layer, the step and the seed is large enough. The
hash is the finalizer of MurmurHash3 (Austin Appleby, 2011). Steps and layers are apart by multiples
of 2^32 divided by the golden ratio (Knuth, "The Art of Computer Programming", volume 3, 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from utvm_deploy.frontend.relax.operators import constant_of, shape_of
from utvm_deploy.frontend.relax.rewrites import changed, with_dropouts
from utvm_deploy.frontend.training.optimizers import Emit, Optimizer
from utvm_deploy.graph.model import Array

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

    @property
    def threshold(self) -> int:
        """Elements whose hash is below this are dropped."""
        return min(round(self.probability * _ALL), _ALL - 1)

    @property
    def scale(self) -> float:
        """1 / (1 - probability), as PyTorch has it; 0 where all elements are dropped."""
        return 1.0 / (1.0 - self.probability) if self.probability < 1 else 0.0

    def mask(self, seed: int, step: int) -> Array:
        """The mask of a step, in float32 of ``shape``; the first step is 0."""
        places = np.arange(math.prod(self.shape), dtype=np.uint32)
        moved = np.uint32(step * _GOLDEN % _ALL)
        bits = _hash(_hash(places + np.uint32(self._key(seed))) + moved)
        kept = np.where(bits >= np.uint32(self.threshold), np.float32(self.scale), np.float32(0))
        return np.asarray(kept, np.float32).reshape(self.shape)

    def emitted(self, builder: Any, step: Any, seed: int) -> Any:
        """The variable of the mask in Relax; ``step`` is one of float32."""

        def mask(steps: Any) -> Any:
            def at(*indices: Any) -> Any:
                flat: Any = tirx.const(0, "int64")
                for index, extent in zip(indices, self.shape, strict=True):
                    flat = flat * extent + index
                place = flat.astype("uint32") + tirx.const(self._key(seed), "uint32")
                moved = steps().astype("uint32") * tirx.const(_GOLDEN, "uint32")
                bits = _hash(_hash(place) + moved)
                kept = bits >= tirx.const(self.threshold, "uint32")
                scale, zero = (tirx.const(one, "float32") for one in (self.scale, 0.0))
                return tirx.Select(kept, scale, zero)

            return te.compute([tirx.IntImm("int64", one) for one in self.shape], at, name="mask")

        return builder.emit_te(mask, step, primfunc_name_hint="dropout_mask")

    def _key(self, seed: int) -> int:
        return int(_hash(np.array([(seed + (self.layer + 1) * _GOLDEN) % _ALL], np.uint32))[0])


def _hash(x: Any) -> Any:
    """Of uint32, in NumPy or TensorIR."""
    is_array = isinstance(x, np.ndarray)

    def number(value: int) -> Any:
        return np.uint32(value) if is_array else tirx.const(value, "uint32")

    x = (x ^ (x >> number(16))) * number(_FIRST)
    x = (x ^ (x >> number(13))) * number(_SECOND)
    return x ^ (x >> number(16))


def counting(optimizer: Optimizer) -> Optimizer:
    """The optimizer with the number of the step as its last shared state."""

    def advance(emit: Emit, shared: Sequence[Any]) -> list[Any]:
        *others, step = shared
        one, zero = (relax.const(n, "float32") for n in (1.0, 0.0))
        is_last = relax.op.equal(step, relax.const(_MOST_STEPS - 1.0, "float32"))
        after = emit(relax.op.where(is_last, zero, relax.op.add(step, one)))
        return [*optimizer.advance(emit, others), after]

    return replace(optimizer, shared=(*optimizer.shared, STEPS), advance=advance)


def with_masks(module: Any, main: str) -> tuple[Any, list[Dropout]]:
    """The module whose dropouts are products with masks, and these dropouts.

    The masks are the last parameters of its function ``main``.
    """
    dropouts, masks = list[Dropout](), list[Any]()

    def masked(x: Any, rate: float) -> Any:
        shape = shape_of(x)
        if rate < 0:  # of whole channels
            shape = (*shape[:2], *(1 for _ in shape[2:]))
        dropouts.append(Dropout(abs(rate), shape, len(dropouts)))
        masks.append(relax.Var(f"mask_{len(masks)}", relax.TensorType(shape, "float32")))
        return relax.op.multiply(x, masks[-1])

    module = with_dropouts(module, main, masked)
    function = module[main]
    parameters = [*function.params, *masks]
    made = relax.Function(parameters, function.body, function.ret_ty, True, function.attrs)
    changed = {**dict(module.functions_items()), module.get_global_var(main): made}
    return relax.transform.Normalize()(ir.IRModule(changed)), dropouts


def without_ones(module: Any, main: str) -> Any:
    """The module without products with masks of ones."""
    return changed(_Unmasked(module), module, main)


#: What makes ones of ones.
_MOVERS = ("relax.grad.no_grad", "relax.permute_dims", "relax.reshape", "relax.expand_dims")


@relax.expr_functor.mutator
class _Unmasked(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op != ir.Op.get("relax.multiply") or not self._is_ones(call.args[1]):
            return call
        return call.args[0] if shape_of(call.args[0]) == shape_of(call) else call

    def _is_ones(self, made: Any) -> bool:
        """Of a product that stays, a mask of ones changes nothing either."""
        if isinstance(made, relax.Var):
            return self._is_ones(self.lookup_binding(made))
        if getattr(getattr(made, "op", None), "name", "") in _MOVERS:
            return self._is_ones(made.args[0])
        array = constant_of(made)
        return array is not None and bool((array == 1).all())
