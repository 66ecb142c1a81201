"""Models that call a library: the status of layers, the library's state, and its scratch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from utvm_deploy.compiler.emission.library import (
    arena_bytes_with_state,
    library_parts,
    state_text,
    states_of,
)


def program(arena: int, layers: int, state: int | None) -> Any:
    """What these functions look at; ``state`` is None without a library."""
    libraries = (
        () if state is None else (SimpleNamespace(name="One", state_bytes=state, engines=()),)
    )
    plan = SimpleNamespace(arena_bytes=arena)
    return SimpleNamespace(plan=plan, layers=(None,) * layers, libraries=libraries)


@pytest.mark.parametrize(
    ("arena", "layers", "state", "offset", "end"),
    [
        (100, 3, None, None, 100),
        (100, 3, 0, None, 103),
        (100, 3, 20, 104, 124),
        (100, 4, 20, 104, 124),
        (100, 5, 20, 112, 132),
    ],
)
def test_a_state_begins_aligned_behind_the_status_of_each_layer(
    arena: int, layers: int, state: int | None, offset: int | None, end: int
) -> None:
    made = program(arena, layers, state)
    span = states_of(made).get("One")
    assert (None if span is None else span.offset) == offset
    assert arena_bytes_with_state(made) == end
    assert state_text(states_of(made).get("One")) == (
        "(void *)0" if offset is None else f"(void *)(arena + {offset})"
    )


def test_backends_have_separate_states_and_are_prepared_in_their_order() -> None:
    def library(name: str, size: int, begin: str) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, state_bytes=size, initialize=begin, engines=(), is_prepared=bool(begin)
        )

    made: Any = SimpleNamespace(
        name="net",
        plan=SimpleNamespace(arena_bytes=100),
        layers=(),
        libraries=(
            library("One", 5, "begin_one"),
            library("Two", 0, ""),
            library("Three", 3, "begin_three"),
        ),
    )
    states = states_of(made)
    assert [state_text(states.get(one)) for one in ("One", "Two", "Three")] == [
        "(void *)(arena + 104)",
        "(void *)0",
        "(void *)(arena + 112)",
    ]
    assert arena_bytes_with_state(made) == 115
    text = library_parts(made, {})
    assert "*status = begin_one((void *)(arena + 104));\n    if (*status == 0) {" in text
    assert "        *status = begin_three((void *)(arena + 112));\n    }\n}" in text


def test_each_layer_asks_whether_its_scratch_is_enough() -> None:
    layers = [
        SimpleNamespace(
            kernel=SimpleNamespace(wanted=wanted, function=SimpleNamespace(scratch_bytes=planned))
        )
        for wanted, planned in ((None, 8), ("wanted_by_dense", 64), ("wanted_by_conv", 96))
    ]
    library = SimpleNamespace(state_bytes=0, initialize="", is_prepared=False)
    made = SimpleNamespace(name="net", layers=layers, libraries=(library,))
    text = library_parts(made, {})  # type: ignore[arg-type]
    assert "if (wanted_by_dense() > 64) {\n        *layer = 1;" in text
    assert "if (wanted_by_conv() > 96) {\n        *layer = 2;" in text
    assert text.count("if (") == 2 and "*layer = -1;" in text
