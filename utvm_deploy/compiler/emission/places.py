"""The check of inputs that say places, such as a token of a vocabulary or a position in a cache."""

from __future__ import annotations

import math

from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.model import CompiledModel


def places_header(model: CompiledModel) -> str:
    """Declares the check; empty for a model without such inputs."""
    if all(one.most is None for one in model.inputs):
        return ""
    return f"""
// Ask before a run whether all tokens and positions that the inputs say exist. Writes -1, or the
// number of the first input that says another: a run takes the nearest instead, and may write
// there.
void {model.name}_check_places(const uint8_t *arena, int32_t *input);
"""


def places_text(model: CompiledModel) -> str:
    """Defines it."""
    asked = [(i, one) for i, one in enumerate(model.inputs) if one.most is not None]
    if not asked:
        return ""
    loops = "".join(
        f"    for (int32_t i = 0; i < {math.prod(one.shape)}; i++) {{\n"
        f"        const {c_type(one.dtype)} place =\n"
        f"            ((const {c_type(one.dtype)} *)(const void *)(arena + {one.offset}))[i];\n"
        f"        if (place < 0 || place > {one.most}) {{\n"
        f"            *input = {number};\n        }}\n    }}\n"
        for number, one in asked[::-1]
    )
    return f"""
void {model.name}_check_places(const uint8_t *arena, int32_t *input) {{
    *input = -1;
{loops}}}
"""
