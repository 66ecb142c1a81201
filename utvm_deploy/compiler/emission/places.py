"""The check of inputs that say places, such as a token of a vocabulary or a position in a cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel


def places_header(model: CompiledModel) -> str:
    """Declares the check; empty for a model without such inputs."""
    return "".join(
        f"""
// Ask before {what} whether all tokens and positions that the inputs say exist. Writes -1, or the
// number of the first input that says another: {what} takes the nearest instead, and may write
// there.
void {model.name}_check_{name}places(const uint8_t *arena, int32_t *input);
"""
        for name, what, _ in _checks(model)
    )


_Asked: TypeAlias = list[tuple[int, Buffer]]


def _checks(model: CompiledModel) -> Iterator[tuple[str, str, _Asked]]:
    """Part of the name, what is asked before, and the inputs: of a step, and of a block."""
    asked = [(i, one) for i, one in enumerate(model.inputs) if one.most is not None]
    part, first = model.prefill, len(model.step_inputs)
    parts = [one for one in asked if one[0] < first], [one for one in asked if one[0] >= first]
    named = ("", "a run" if part is None else "a step"), ("prefill_", "a block")
    for (name, what), some in zip(named, parts, strict=True):
        if some:
            yield name, what, some


def places_text(model: CompiledModel) -> str:
    """Defines it."""
    return "".join(_check_text(model, name, asked) for name, _, asked in _checks(model))


def _check_text(model: CompiledModel, name: str, asked: _Asked) -> str:
    loops = "".join(
        f"    for (int32_t i = 0; i < {math.prod(one.shape)}; i++) {{\n"
        f"        const {c_type(one.dtype)} place =\n"
        f"            ((const {c_type(one.dtype)} *)(const void *)(arena + {one.offset}))[i];\n"
        f"        if (place < 0 || place > {one.most}) {{\n"
        f"            *input = {number};\n        }}\n    }}\n"
        for number, one in asked[::-1]
    )
    return f"""
void {model.name}_check_{name}places(const uint8_t *arena, int32_t *input) {{
    *input = -1;
{loops}}}
"""
