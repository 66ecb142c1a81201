"""Random Relax modules of dense layers, and regions that TVM's own patterns find in them.

python tests/backends/random_relax.py 0 200
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from host_model import STRICT, write_sources
from random_regions import HOST, loaded
from tvm import relax
from tvm.relax import dpl

from utvm_deploy.backends import Array, Backend, CText, KernelCall, Match, Pattern, call
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.relax.road import relax_graph, relax_model

COUNT = 5
Net = Callable[[Array], list[Array]]


def build(match: Match) -> KernelCall:
    """Dense layers of float32 one after the other; what is between them is in scratch."""
    places = {n: f"input_{i}" for i, n in enumerate(match.inputs)}
    places |= {n: f"output_{i}" for i, n in enumerate(match.outputs)}
    tables, body = {}, "float *inside = (float *)(void *)scratch;\n(void)inside;\n"
    for position, one in enumerate(match.operations):
        source, made = one.position(0), one.operator.outputs[0]
        places.setdefault(made, f"(inside + {position * COUNT})")
        weights, bias = one.constant(1), one.bias(one.result.shape[-1])
        tables[f"w{position}"], depth = weights, weights.shape[1]
        tables[f"b{position}"] = np.zeros(len(weights), np.float32) if bias is None else bias
        limits = getattr(one.operator.attributes, "limits", None)
        limit = "" if limits is None else f"sum = sum > {limits[0]}f ? sum : {limits[0]}f;"
        body += f"""for (int32_t c = 0; c < {prod(one.result.shape)}; c++) {{
float sum = b{position}[c];
for (int32_t k = 0; k < {depth}; k++) {{
sum += {places[source]}[k] * w{position}[c * {depth} + k];
}}
{limit}
{places[made]}[c] = sum;
}}
"""
    size = 4 * COUNT * len(match.operators)
    return call(match, "dense", body + "return 0;", tables=tables, scratch_bytes=size)


def dense(x: Any) -> Any:
    return dpl.is_op("relax.matmul")(x, dpl.is_const())


def hidden(x: Any) -> Any:
    return dpl.is_op("relax.nn.relu")(dpl.is_op("relax.add")(dense(x), dpl.is_const()))


def either(x: Any) -> Any:
    return hidden(x) | dense(x)


def backend(name: str, *patterns: Callable[[Any], Any]) -> Backend:
    """A backend of patterns; each is a function of what it reads."""
    found = tuple(Pattern(one(dpl.wildcard()), build) for one in patterns)
    return loaded(Backend(name, found, CText("")))


#: Two of each set may swallow what the other one wants.
BACKENDS = (
    (backend("Hidden", hidden),),
    (backend("Pairs", lambda x: dense(hidden(x)), dense), backend("Hidden", hidden)),
    (backend("Either", lambda x: either(either(x))), backend("Single", dense, hidden)),
    (backend("Triple", lambda x: dense(dense(either(x)))), backend("Pairs", either)),
)


def random_module(seed: int) -> tuple[Any, Net]:
    """A module of dense layers and additions, and the same with NumPy."""
    random = np.random.default_rng(seed)
    x = relax.Var("x", relax.TensorType((1, COUNT), "float32"))
    builder = relax.BlockBuilder()
    steps: list[Callable[[list[Array]], Array]] = []

    def weights(*shape: int) -> Array:
        return random.uniform(-1, 1, shape).astype(np.float32)

    def layer(values: list[Any], at: int) -> Any:
        w, b = weights(COUNT, COUNT), weights(1, COUNT) if random.random() < 0.7 else None
        is_bounded = random.random() < 0.6
        value = builder.emit(relax.op.matmul(values[at], relax.const(w)))
        if b is not None:
            value = builder.emit(relax.op.add(value, relax.const(b)))
        if is_bounded:
            value = builder.emit(relax.op.nn.relu(value))

        def computed(known: list[Array]) -> Array:
            found = known[at] @ w + (0 if b is None else b)
            return np.maximum(found, 0) if is_bounded else found

        steps.append(computed)
        return value

    with builder.function("main", [x]):
        with builder.dataflow():
            values: list[Any] = [x]
            for _ in range(int(random.integers(2, 9))):
                at = len(values) - 1 - min(int(random.geometric(0.7)) - 1, len(values) - 1)
                other = int(random.integers(len(values)))
                if random.random() < 0.2 and other != at:
                    values.append(builder.emit(relax.op.add(values[at], values[other])))
                    steps.append(lambda known, a=at, b=other: known[a] + known[b])
                else:
                    values.append(layer(values, at))
            kept = [len(values) - 1]
            if random.random() < 0.4 and len(values) > 2:
                kept.append(int(random.integers(1, len(values) - 1)))
            ends = [values[one] for one in kept]
            result = builder.emit_output(relax.Tuple(ends) if len(ends) > 1 else ends[0])
        builder.emit_func_output(result)

    def net(given: Array) -> list[Array]:
        known = [given]
        for step in steps:
            known.append(step(known))
        return [known[one] for one in kept]

    return builder.get(), net


def check(seeds: Sequence[int], folder: Path) -> int:
    """Compile the modules into one library and compare their outputs; the layers of backends."""
    made, sources = [], list[str]()
    for seed in seeds:
        module, net = random_module(seed)
        graph = replace(relax_graph(relax_model(module), f"r{seed}"), name=f"r{seed}")
        options = CompileOptions(backends=BACKENDS[seed % len(BACKENDS)])
        compiled = compile_model(graph, HOST, options)
        sources += map(str, write_sources(compiled, folder / f"r{seed}"))
        made.append((compiled, net))
    library = folder / f"relax_{seeds[0]}.so"
    command = ["gcc", *STRICT, "-O0", "-shared", "-fPIC", "-o", str(library), *sources, "-lm"]
    subprocess.run(command, check=True, timeout=600)
    functions = ctypes.CDLL(str(library))
    for compiled, net in made:
        arena = np.zeros(compiled.arena_bytes + 16, np.uint8)
        arena = arena[-arena.ctypes.data % 16 :][: compiled.arena_bytes]
        given = np.random.default_rng(len(sources)).uniform(-2, 2, (1, COUNT)).astype(np.float32)
        (source,) = compiled.inputs
        arena[source.offset : source.offset + given.nbytes] = given.view(np.uint8).ravel()
        getattr(functions, f"{compiled.name}_run")(ctypes.c_void_p(arena.ctypes.data))
        for buffer, wanted in zip(compiled.outputs, net(given), strict=True):
            found = arena[buffer.offset : buffer.offset + buffer.size_bytes].view(np.float32)
            limit = 1e-4 * max(float(np.abs(wanted).max()), 1e-6)
            assert np.abs(found - wanted.ravel()).max() <= limit, compiled.name
        if compiled.status_offset is not None:
            status = arena[compiled.status_offset :][: len(compiled.layers)]
            assert not any(status[one.index] for one in compiled.layers if one.is_external)
    return sum(one.is_external for compiled, _ in made for one in compiled.layers)


def main(first: int, end: int) -> None:
    """Check the modules with these numbers."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for start in range(first, end, 50):
            seeds = range(start, min(start + 50, end))
            total += check(seeds, Path(folder))
            print(f"{seeds[-1] + 1 - first} modules, {total} layers of backends", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
