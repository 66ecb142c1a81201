"""Reduces a failing recipe to the smallest that still fails.

Greedy: the first simpler recipe that fails the same way takes the place of the old one, until none
does. Large cuts come first: steps go, then inputs stand for what was computed, then shapes shrink
and attributes become the plainest there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from random_models.recipe import (
    CONSTANT,
    INPUT,
    QUANTIZED,
    Attribute,
    Recipe,
    Ref,
    Step,
    Unfit,
    write,
)

#: Whether a recipe still fails; Unfit counts as no.
Fails = Callable[[Recipe], bool]

#: Each try compiles and runs a model; this many take a few minutes at most.
MAX_TRIES = 600

# Words from the plainest on; anything may become what stands before it.
_WORDS = {
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "padding": ("VALID", "SAME"),
    "fill": ("zeros", "ones", "random", "ends"),
    "bias": ("none", "zeros", "random", "large"),
    "mode": ("SYMMETRIC", "REFLECT"),
}


@dataclass(frozen=True)
class Minimized:
    """The smallest recipe found, and how many were tried."""

    recipe: Recipe
    tries: int


def minimize(recipe: Recipe, fails: Fails, max_tries: int = MAX_TRIES) -> Minimized:
    """A smaller recipe that ``fails`` says still does."""
    tries = 0
    seen: set[str] = set()
    progress = True
    while progress and tries < max_tries:
        progress = False
        for candidate in simpler(recipe):
            key = repr(candidate)
            if key in seen or not _is_model(candidate):
                continue
            seen.add(key)
            tries += 1
            if fails(candidate):
                recipe, progress = candidate, True
                break
            if tries >= max_tries:
                break
    return Minimized(recipe, tries)


def simpler(recipe: Recipe) -> Iterator[Recipe]:
    """Every recipe one reduction away, the greatest reductions first."""
    yield from _with_fewer_outputs(recipe)
    yield from _with_inputs_for_steps(recipe)
    yield from _without_steps(recipe)
    for number, step in enumerate(recipe.steps):
        for attributes in _simpler_attributes(step):
            changed = replace(step, attributes=attributes)
            steps = (*recipe.steps[:number], changed, *recipe.steps[number + 1 :])
            yield replace(recipe, steps=steps)


def _is_model(recipe: Recipe) -> bool:
    try:
        write(recipe)
    except Unfit:
        return False
    return True


def _with_fewer_outputs(recipe: Recipe) -> Iterator[Recipe]:
    """One output alone, of any step, with only what it needs."""
    operators = [n for n, s in enumerate(recipe.steps) if s.kind not in (INPUT, CONSTANT)]
    for number in operators:
        shorter = pruned(replace(recipe, outputs=((number, 0),)))
        if shorter != recipe:
            yield shorter
    if len(recipe.outputs) > 1:
        for ref in recipe.outputs:
            yield pruned(replace(recipe, outputs=(ref,)))
            rest = tuple(other for other in recipe.outputs if other != ref)
            yield pruned(replace(recipe, outputs=rest))


def _with_inputs_for_steps(recipe: Recipe) -> Iterator[Recipe]:
    """Model inputs of the same shape instead of what a step computes, or a constant holds."""
    try:
        writer = write(replace(recipe, outputs=_all_values(recipe)))
    except Unfit:
        return
    tensors = dict(zip(_all_values(recipe), writer.outputs, strict=True))
    for number, step in reversed(list(enumerate(recipe.steps))):
        refs = [ref for ref in tensors if ref[0] == number]
        if step.kind == INPUT or len(refs) != 1 or refs[0] in recipe.outputs:
            continue
        spec = writer.tensors[tensors[refs[0]]]
        attributes: dict[str, Attribute] = {"shape": spec.shape, "dtype": spec.dtype}
        if spec.dtype in QUANTIZED:
            attributes.update(scale=spec.scales[0], zero_point=spec.zero_points[0])
        stands_in = Step(INPUT, (), attributes)
        steps = (*recipe.steps[:number], stands_in, *recipe.steps[number + 1 :])
        yield pruned(replace(recipe, steps=steps))


def _all_values(recipe: Recipe) -> tuple[Ref, ...]:
    """The first value of each step; enough, for those with several are left alone."""
    return tuple((number, 0) for number in range(len(recipe.steps)))


def _without_steps(recipe: Recipe) -> Iterator[Recipe]:
    """A step's input in the place of its output."""
    for number, step in enumerate(recipe.steps):
        for source in dict.fromkeys(step.inputs):
            moved = {number: source}
            steps = tuple(
                replace(s, inputs=tuple(moved.get(ref[0], ref) for ref in s.inputs))
                for s in recipe.steps
            )
            outputs = tuple(dict.fromkeys(moved.get(ref[0], ref) for ref in recipe.outputs))
            kept = tuple(r for r in outputs if steps[r[0]].kind not in (INPUT, CONSTANT))
            if kept:
                yield pruned(Recipe(steps, kept))
        if len(step.inputs) > 1:  # CONCATENATION and PACK take fewer
            for position in range(len(step.inputs)):
                fewer = step.inputs[:position] + step.inputs[position + 1 :]
                changed = replace(step, inputs=fewer)
                steps = (*recipe.steps[:number], changed, *recipe.steps[number + 1 :])
                yield pruned(replace(recipe, steps=steps))


def pruned(recipe: Recipe) -> Recipe:
    """The recipe without steps that no output needs."""
    needed = {ref[0] for ref in recipe.outputs}
    for number in reversed(range(len(recipe.steps))):
        if number in needed:
            needed.update(ref[0] for ref in recipe.steps[number].inputs)
    numbers = {old: new for new, old in enumerate(sorted(needed))}
    steps = tuple(
        replace(
            recipe.steps[old], inputs=tuple((numbers[s], o) for s, o in recipe.steps[old].inputs)
        )
        for old in sorted(needed)
    )
    return Recipe(steps, tuple((numbers[s], o) for s, o in recipe.outputs))


def _simpler_attributes(step: Step) -> Iterator[dict[str, Attribute]]:
    for name, value in step.attributes.items():
        for simple in _simpler_values(name, value):
            yield {**step.attributes, name: simple}
        if name == "shape" and isinstance(value, tuple) and len(value) > 1:
            for axis in range(len(value)):
                yield {**step.attributes, name: value[:axis] + value[axis + 1 :]}


def _simpler_values(name: str, value: Attribute) -> Iterator[Attribute]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from _simpler_numbers(value)
    elif isinstance(value, float):
        yield from _simpler_reals(value)
    elif isinstance(value, str):
        words = _WORDS.get(name, (value,))
        yield from words[: words.index(value)]
    else:
        plain = tuple(1 if name in ("shape", "stride", "dilation", "window") else 0 for _ in value)
        if value != plain:
            yield plain
        for position, number in enumerate(value):
            for simple in _simpler_numbers(number):
                yield (*value[:position], simple, *value[position + 1 :])


def _simpler_numbers(value: int) -> Iterator[int]:
    """0 and 1, then half, then one less."""
    sign = -1 if value < 0 else 1
    for simple in (0, sign, value // 2 if value > 0 else -(-value // 2), value - sign):
        if abs(simple) < abs(value):
            yield simple


def _simpler_reals(value: float) -> Iterator[float]:
    """One, then the nearest power of two."""
    if value <= 0 or math.frexp(value)[0] == 0.5:
        if value != 1.0 and value > 0:
            yield 1.0
        return
    yield 1.0
    yield 2.0 ** round(math.log2(value))
