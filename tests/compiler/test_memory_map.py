"""The memory map of a compiled model: what the arena holds in which layers."""

from __future__ import annotations

from pathlib import Path

import utvm_deploy

DIGITS = Path(__file__).resolve().parents[2] / "models" / "digits.tflite"


def test_the_map_of_a_model_fills_its_arena_and_nothing_overlaps_unintended() -> None:
    compiled = utvm_deploy.compile(DIGITS, "host")
    uses = compiled.memory
    assert max(use.offset + use.size_bytes for use in uses) == compiled.arena_bytes
    (found,) = (use for use in uses if use.kind == "input")
    assert (found.offset, found.size_bytes) == (compiled.inputs[0].offset, 64)
    (made,) = (use for use in uses if use.kind == "output")
    assert (made.offset, made.last) == (compiled.outputs[0].offset, len(compiled.layers) - 1)
    # Two uses may share bytes only in the layer in which the one follows the other.
    for use in uses:
        for other in uses:
            together = range(max(use.first, other.first), min(use.last, other.last) + 1)
            shared = max(use.offset, other.offset) < min(
                use.offset + use.size_bytes, other.offset + other.size_bytes
            )
            if use is not other and shared and len(together):
                assert together in (
                    range(use.last, use.last + 1),
                    range(other.last, other.last + 1),
                )


def test_the_scratch_of_each_layer_is_in_the_map() -> None:
    compiled = utvm_deploy.compile(DIGITS, "host")
    for place, layer in enumerate(compiled.layers):
        scratch = [u for u in compiled.memory if u.kind == "scratch" and u.first == place]
        assert sum(use.size_bytes for use in scratch) == layer.scratch_bytes
