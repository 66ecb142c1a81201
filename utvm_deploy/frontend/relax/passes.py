"""From a Relax module to one dataflow block of kernel calls: a list of passes.

    module ─▶ prepare ─▶ rewrites, spectra ─▶ layout ─▶ our operators ─▶ legalize, fuse ─▶ lowered

What becomes one of our operators (``operators.py``) is a call of a packed function from then on.
TVM's passes leave it alone. Everything else becomes ``call_tir`` of a fused PrimFunc.
"""

from __future__ import annotations

import logging
from typing import Any

import tvm
from tvm import tirx
from tvm.relax import transform as t

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.frontend.relax.attention import with_attention
from utvm_deploy.frontend.relax.check import check_computed, check_lowered
from utvm_deploy.frontend.relax.corrected_kernels import CORRECTED_KERNELS
from utvm_deploy.frontend.relax.folding import FoldByNumPy
from utvm_deploy.frontend.relax.operators import operator_name, with_our_operators
from utvm_deploy.frontend.relax.rewrites import (
    with_clips,
    with_extremes,
    with_rewrites,
    without_dropouts,
)
from utvm_deploy.frontend.relax.shared_products import with_shared_products
from utvm_deploy.frontend.relax.sorting import SORTS_AND_SCANS
from utvm_deploy.frontend.relax.spectra import with_spectra

_log = logging.getLogger(__name__)

MAIN = "main"
#: Convolutions read images by rows, columns and channels, as all of our kernels do.
LAYOUTS = {
    "relax.nn.conv2d": ["NHWC", "OHWI"],
    # TVM has kernels for this layout only.
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
}

_OPAQUE = 8  # TVM's number for functions that are fused with nothing


@tvm.transform.module_pass(opt_level=0, name="KeepApart")
class _KeepApart:
    """Keeps PrimFuncs from fusion whose extents are of int32, as TVMScript makes them.

    Those of TVM's operators are of int64, and FuseTIR fails on a buffer with both.
    """

    def transform_module(self, module: Any, _context: Any) -> Any:
        """The module with such functions marked as opaque."""
        for name, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc) and _has_narrow_extents(function):
                module.update_func(name, function.with_attr("op_pattern", _OPAQUE))
        return module


def _has_narrow_extents(function: Any) -> bool:
    shapes = (getattr(parameter, "shape", ()) for parameter in function.params)
    return any(str(extent.ty) != "int64" for shape in shapes for extent in shape)


_FOLD = (
    t.CanonicalizeBindings(),
    t.DecomposeOpsForInference(),
    t.ConvertToDataflow(1),
    FoldByNumPy(),
    t.FoldConstant(),
)
_FOLD_APART = (*_FOLD, t.DeadCodeElimination([MAIN]))
_PREPARE = (*_FOLD, t.EliminateCommonSubexpr(), t.DeadCodeElimination([MAIN]))
_LAYOUT = (
    t.ConvertLayout(LAYOUTS),
    t.CanonicalizeBindings(),
    FoldByNumPy(),
    t.FoldConstant(),
    t.DeadCodeElimination([MAIN]),
)
_LOWER = (
    t.LegalizeOps({**SORTS_AND_SCANS, **CORRECTED_KERNELS}),
    t.AnnotateTIROpPattern(),
    _KeepApart(),
    t.FoldConstant(),
    t.RewriteDataflowReshape(),
    t.FuseOps(),
    t.FuseTIR(),
    t.ExpandTupleArguments(),
    t.DeadCodeElimination([MAIN]),
)


def prepared_module(module: Any) -> Any:
    """The module with folded constants and batch normalizations, and images in our layout.

    Equal expressions stay apart: layers with equal weights may train to others. Raises ModelError
    if a pass of TVM fails.
    """
    with tvm.target.Target("c"), tvm.transform.PassContext(opt_level=3):
        module = with_extremes(with_rewrites(_run(_FOLD_APART, module), MAIN), MAIN)
        return _run(_FOLD_APART, with_clips(_with_layout(module), MAIN))


def lowered_module(module: Any) -> Any:
    """The module as one dataflow block of calls; every shape in it is known.

    Raises ModelError or UnsupportedOperator, naming the function or operator, for what cannot be
    lowered.
    """
    with tvm.target.Target("c"), tvm.transform.PassContext(opt_level=3):
        module = _run(_PREPARE, without_dropouts(module, MAIN))
        module = with_rewrites(module, MAIN)
        module = with_shared_products(module, MAIN)
        module = with_spectra(module, MAIN)
        module = _with_layout(module)
        check_computed(module)
        module = with_our_operators(with_attention(module, MAIN), MAIN)
        module = _run(_LOWER, module)
    check_lowered(module)
    return module


def _with_layout(module: Any, passes: tuple[Any, ...] = _LAYOUT) -> Any:
    """The module with the layout of our convolutions, or by other passes, if it has any.

    TVM's ConvertLayout fails on some operators, such as ``stack``. Such a module keeps its layout:
    its convolutions become ``call_tir``, which is slower.
    """
    calls = (binding.value for block in module[MAIN].body.blocks for binding in block.bindings)
    if not {*map(operator_name, calls)} & LAYOUTS.keys():
        return module
    try:
        return _run(passes, module)
    except ModelError as error:
        _log.info("%s; convolutions keep their layout", error)
        return module


def _run(passes: tuple[Any, ...], module: Any) -> Any:
    for one in passes:
        try:
            module = one(module)
        except UnsupportedOperator:
            raise
        except Exception as exc:  # TVM raises RuntimeError and its subclasses of many names
            if isinstance(exc, MemoryError) or "bad_alloc" in str(exc):
                raise ModelError(
                    f"TVM's pass {one.info.name} needs more memory than an import may take; "
                    "choose a model for microcontrollers"
                ) from exc
            raise ModelError(
                f"TVM's pass {one.info.name} fails on the module: {last_words(exc)}"
            ) from exc
    return module
