"""Rust of a crate: the types of inputs and outputs, and the first golden vector."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.bundling.vectors import allowed_difference, golden_bytes
from utvm_deploy.compiler.c_text import c_type, comment, float_literal
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.compiler.planning.pools import POOL_ALIGNMENT
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.project.zephyr import fill

_FLOATS = {"float": "f32", "double": "f64"}


def rust_values(
    compiled: CompiledModel,
    board: Board,
    inputs: Sequence[Array],
    expected: Sequence[Array],
    tolerance: float,
) -> dict[str, str]:
    """What the templates of a crate say of the model, by placeholder.

    ``inputs`` and ``expected`` are one sample's. A float32 output may differ by the part
    ``tolerance`` of its largest magnitude.
    """
    taken, made = list(enumerate(compiled.taken)), list(enumerate(compiled.outputs))
    results = [f"self.output_{i}()" for i, _ in made]
    types = [f"&Output{i}" for i, _ in made]
    is_one = len(made) == 1
    remembers, load = bool(compiled.states), compiled.load_function

    def pools(text: str) -> str:
        """``text`` for each pool."""
        return "".join(
            text.format(one=pool.parameter, kind=_camel(pool.parameter)) for pool in compiled.pools
        )

    begin = (
        f"        unsafe {{ {load}({pools(', model.{one}.0.as_mut_ptr()')[2:]}) }}\n"
        if load
        else ""
    )
    if begin:
        begin = f"        // SAFETY: the pools have the sizes that the C asks for.\n{begin}"
    begin += "        model.reset();\n" if remembers else ""
    extern = f"    fn {load}({pools(', {one}: *mut u8')[2:]});\n" if load else ""
    extern += f"    fn {compiled.name}_reset(arena: *mut u8);\n" if remembers else ""
    return {
        "RUST_TYPES": "\n".join(
            [*_types("Input", compiled.taken), *_types("Output", compiled.outputs)]
        ),
        "RUST_ACCESS": "".join([*_access(taken, "input"), *_access(made, "output")]),
        "RUST_PARAMETERS": "".join(f", input_{i}: &Input{i}" for i, _ in taken),
        "RUST_COPIES": "".join(f"        *self.input_{i}() = *input_{i};\n" for i, _ in taken),
        "RUST_RESULT": types[0] if is_one else f"({', '.join(types)})",
        "RUST_RESULTS": results[0] if is_one else f"({', '.join(results)})",
        "RUST_RESET": _template("reset") if remembers else "",
        "RUST_NEW": f"{begin}        model\n",
        "RUST_MUT": "mut " if begin else "",
        "RUST_POOLS": "".join(map(_memory, compiled.pools)),
        "RUST_POOLS_MADE": pools(f"    let mut {{one}} = {compiled.name}::{{kind}}::new();\n"),
        "RUST_POOL_FIELDS": pools("    {one}: &'a mut {kind},\n"),
        "RUST_POOL_OWNED": pools(", {one}: &'a mut {kind}"),
        "RUST_POOL_NAMES": pools(", {one}"),
        "RUST_POOL_LENT": pools(", {one}: &mut {kind}"),
        "RUST_POOL_SELF": pools(", self.{one}.0.as_mut_ptr()"),
        "RUST_POOL_POINTERS": pools(", {one}.0.as_mut_ptr()"),
        "RUST_POOL_TYPES": pools(", {one}: *mut u8"),
        "RUST_POOL_LETS": pools("    let mut {one} = zeroed();\n"),
        "RUST_POOL_GIVEN": pools(", &mut {one}"),
        "ARENA_SIZE": str(compiled.arena_bytes),
        "ARENA_ALIGN": str(compiled.arena_alignment),
        "RUST_EXTERN": extern,
        "RUST_GIVEN": ", ".join(f"&input_{i}" for i, _ in taken),
        "RUST_VECTORS": "\n".join(_vectors(compiled, inputs, expected, tolerance)),
        "RUST_LET": "".join(
            f"    let input_{i} = boxed::<{compiled.name}::Input{i}>(&INPUT_{i});\n"
            for i, _ in taken
        ),
        "RUST_CHECKS": "".join(
            f"    check(bytes_of(model.output_{i}()), &OUTPUT_{i}, ALLOWED_{i});\n" for i, _ in made
        ),
        "RUST_FLAGS": ", ".join(f'"{flag}"' for flag in board.cpu.compiler_flags)
        if not board.is_host
        else "",
    }


def _template(name: str, **words: object) -> str:
    text = (data_dir("templates") / "bundle" / "rust" / f"{name}.rs").read_text(encoding="utf-8")
    return fill(text, {key: str(word) for key, word in words.items()}) if words else text


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _memory(pool: MemoryPool) -> str:
    words = {"REGION": pool.name, "BYTES": pool.size_bytes, "ALIGN": POOL_ALIGNMENT}
    return _template("pool", KIND=_camel(pool.parameter), **words)


def _access(buffers: Sequence[tuple[int, Buffer]], what: str) -> Iterator[str]:
    words = {"WHAT": what, "KIND": what.capitalize()}
    words |= {"MUT": "mut ", "MUT_": "mut_"} if what == "input" else {"MUT": "", "MUT_": ""}
    for index, buffer in buffers:
        yield _template("access", INDEX=index, OFFSET=buffer.offset, **words)


def _types(kind: str, buffers: Sequence[Buffer]) -> Iterator[str]:
    for index, buffer in enumerate(buffers):
        prefix = f"{kind.upper()}_{index}"
        yield f"/// `{comment(buffer.name)}`: {buffer.dtype}."
        yield f"pub type {kind}{index} = {_type(buffer)};"
        if buffer.scale is not None and buffer.zero_point is not None:
            yield f"/// A real value is `{prefix}_SCALE * (q - {prefix}_ZERO_POINT)`."
            yield f"pub const {prefix}_SCALE: f32 = {_float(buffer.scale)};"
            yield f"/// See [`{prefix}_SCALE`]."
            yield f"pub const {prefix}_ZERO_POINT: i32 = {buffer.zero_point};"


def _type(buffer: Buffer) -> str:
    """Arrays of arrays, as the shape is; packed elements are one array of storage units."""
    name = c_type(buffer.dtype)
    match = re.fullmatch(r"(u?)int(\d+)_t", name)
    if match is None and name not in _FLOATS:
        raise BundleError(f"{buffer.name} is {buffer.dtype}, which Rust has no type for")
    text = f"{match[1] or 'i'}{match[2]}" if match else _FLOATS[name]
    one = element_type(buffer.dtype)
    dims = buffer.shape if one.in_unit == 1 else (buffer.size_bytes // one.unit_bytes,)
    for size in reversed(dims):
        text = f"[{text}; {size}]"
    return text


def _float(value: float) -> str:
    return float_literal(value).removesuffix("f")


def _vectors(
    compiled: CompiledModel, inputs: Sequence[Array], expected: Sequence[Array], tolerance: float
) -> Iterator[str]:
    for what, buffers, arrays in (
        ("INPUT", compiled.taken, inputs),
        ("OUTPUT", compiled.outputs, expected),
    ):
        for index, (buffer, array) in enumerate(zip(buffers, arrays, strict=True)):
            values = golden_bytes(buffer, array, f"{what.lower()} {index}")
            yield f"const {what}_{index}: [u8; {buffer.size_bytes}] = [\n{values}];"
            if what == "OUTPUT":
                allowed = allowed_difference(array, tolerance) if tolerance else -1.0
                yield f"const ALLOWED_{index}: f32 = {_float(allowed)};"
