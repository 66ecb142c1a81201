"""Regions of random graphs on this computer: bytes against NumPy, and what a partition must be.

python tests/backends/random_regions.py 0 1000
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from generated_backend import chance, covering, with_patterns
from host_model import STRICT, write_sources
from region_graphs import computed, random_graph

from utvm_deploy.backends.interface import Backend, Match
from utvm_deploy.backends.regions import is_region, partitioned
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Array, Graph

HOST = load_board("host")
RUNS = 2


def loaded(backend: Backend) -> Backend:
    """The backend as a plug-in would have it."""
    family = f"backend-{backend.name.lower()}"
    return replace(backend, origin=f"plug-in {backend.name}", family=family, digest="0" * 64)


def weighed(backend: Backend) -> Backend:
    """The backend with estimates: so the gains of two backends' regions differ."""

    def estimate(match: Match) -> float:
        return 900 * chance(f"{backend.name} {match.graph.name} {match.outputs}")

    return replace(backend, estimate=estimate)


#: Which backends a graph is compiled with, by its number.
BACKENDS: tuple[tuple[Backend, ...], ...] = tuple(
    tuple(map(loaded, some))
    for some in (
        (covering("Most", 0.8),),
        (covering("Half", 0.5), covering("Others", 0.9)),
        (with_patterns("Patterns"),),
        (with_patterns("Patterns"), covering("Most", 0.8)),
        (covering("All", 1.0),),
        # Each of these may swallow the others' regions.
        tuple(map(weighed, (covering("A", 1.0), covering("B", 1.0), with_patterns("C")))),
        (weighed(covering("A", 0.9)), weighed(covering("B", 0.9))),
    )
)


def backends_of(seed: int) -> tuple[Backend, ...]:
    return BACKENDS[seed % len(BACKENDS)]


def check_partition(graph: Graph, backends: Sequence[Backend]) -> int:
    """Disjoint, complete, convex, and as large as possible; the number of regions."""
    made = partitioned(graph, backends, "host")
    check_graph(made)
    sources = [source for one in made.operators for source in one.sources]
    assert sorted(sources) == list(range(len(graph.operators)))
    after = np.zeros((len(graph.operators),) * 2, bool)
    makers = {one.outputs[0]: i for i, one in enumerate(graph.operators)}
    for i, one in enumerate(graph.operators):
        for number in one.inputs:
            if number in makers:
                after[:, i] |= after[:, makers[number]]
                after[makers[number], i] = True
    regions = [one for one in made.operators if is_region(one)]
    for one in regions:
        inside = list(one.sources)
        outside = np.setdiff1d(np.arange(len(graph.operators)), inside)
        between = after[inside].any(0) & after[:, inside].any(1)
        assert not between[outside].any(), f"{graph.name}: {one.kind} is not convex"
    return len(regions)


def check_bytes(seeds: Sequence[int], folder: Path) -> int:
    """Compile all graphs into one library, run each twice, and compare; the number of regions."""
    made: list[tuple[Graph, CompiledModel]] = []
    sources: list[str] = []
    for seed in seeds:
        graph = random_graph(seed)
        compiled = compile_model(graph, HOST, CompileOptions(backends=backends_of(seed)))
        sources += map(str, write_sources(compiled, folder / graph.name))
        made.append((graph, compiled))
    library = folder / f"all_{seeds[0]}.so"
    command = ["gcc", *STRICT, "-Wno-tautological-compare", "-O0", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), *sources], check=True, timeout=600)
    functions = ctypes.CDLL(str(library))
    for graph, compiled in made:
        _compare(graph, compiled, functions)
    return sum(layer.is_external for _, compiled in made for layer in compiled.layers)


def _compare(graph: Graph, compiled: CompiledModel, functions: ctypes.CDLL) -> None:
    random = np.random.default_rng(len(graph.tensors))
    arena = random.integers(0, 256, compiled.arena_bytes + 16).astype(np.uint8)
    arena = arena[-arena.ctypes.data % 16 :][: compiled.arena_bytes]
    address = ctypes.c_void_p(arena.ctypes.data)
    states: list[Array] = [np.full(graph.tensors[0].shape, -7, np.int8) for _ in graph.states]
    if compiled.states:
        getattr(functions, f"{compiled.name}_reset")(address)
    for _ in range(RUNS):
        inputs = [random.integers(-128, 128, graph.tensors[i].shape) for i in graph.inputs]
        inputs = [one.astype(np.int8) for one in inputs]
        for buffer, value in zip(compiled.inputs, inputs, strict=True):
            arena[buffer.offset : buffer.offset + value.size] = value.view(np.uint8).ravel()
        wanted = computed(graph, inputs, states)
        for layer in compiled.layers:
            getattr(functions, f"{compiled.name}_run_layer")(ctypes.c_uint32(layer.index), address)
            for buffer in layer.outputs:
                assert buffer.source is not None
                found = arena[buffer.offset : buffer.offset + buffer.size_bytes].view(np.int8)
                right = wanted[buffer.source].ravel()
                assert (found == right).all(), f"{graph.name}: layer {layer.index}, {layer.kind}"
        if compiled.status_offset is not None:
            status = arena[compiled.status_offset :][: len(compiled.layers)]
            assert not any(status[one.index] for one in compiled.layers if one.is_external)
        states = [wanted[left] for _, left in graph.states]


def main(first: int, end: int) -> None:
    """Check the graphs with these numbers."""
    regions = 0
    with tempfile.TemporaryDirectory() as folder:
        for start in range(first, end, 100):
            seeds = range(start, min(start + 100, end))
            for seed in seeds:
                check_partition(random_graph(seed), backends_of(seed))
            regions += check_bytes(seeds, Path(folder))
            print(f"{seeds[-1] + 1 - first} graphs, {regions} layers of backends", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
