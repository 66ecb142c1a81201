"""The C that checks serialized regions, has their engines prepare them, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from utvm_deploy.compiler.arena.constants import ConstantTables
from utvm_deploy.compiler.lowering.program import Program, constant_of
from utvm_deploy.kernels.contract.call import OTHER_STATUS, ConstantArgument
from utvm_deploy.kernels.contract.external_library import HEADER_BYTES, LAYER_STATUS, engine_magic

# The CRC-32 of zlib, four bits at a time.
_CHECK = """
// 0 if an engine can run these bytes, or why not. Before them are a magic number, the CRC-32 of
// what follows, the version of their format, and how many they are.
static int32_t refused(const uint8_t *blob, uint32_t bytes, uint32_t magic, uint32_t newest) {
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u,
        0x4DB26158u, 0x5005713Cu, 0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu,
        0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu};
    uint32_t words[4] = {0u, 0u, 0u, 0u};
    for (uint32_t i = 0; i < 16u; i++) {
        words[i / 4u] |= (uint32_t)blob[i] << (i % 4u * 8u);
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (uint32_t i = 8; i < 16u + bytes; i++) {
        crc ^= blob[i];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
    }
    if (words[0] != magic) {
        return 125;
    }
    if (words[3] != bytes || words[1] != ~crc) {
        return 124;
    }
    return words[2] > newest ? 126 : 0;
}
"""


def blobs_of(program: Program, tables: ConstantTables) -> dict[int, tuple[str, int]]:
    """Layer of a serialized region -> the C expression for its table, and the bytes in it."""
    found = {}
    for index, layer in enumerate(program.layers):
        for argument in layer.step.call.arguments if layer.kernel.engine else ():
            if isinstance(argument, ConstantArgument):
                constant = constant_of(program, index, argument)
                assert constant is not None
                member = tables.add(*constant)
                size = constant[1].nbytes - HEADER_BYTES
                found[index] = (f"{program.name}_weights.{member}", size)
    return found


def engine_declarations(engines: tuple[str, ...]) -> str:
    """What generated C calls of engines, and its check of their bytes."""
    declared = "".join(
        f"extern uint32_t {one}_format(void);\n"
        f"extern int32_t {one}_init(const uint8_t *blob, uint32_t bytes, void *state);\n"
        f"extern void {one}_release(void *state);\n"
        for one in engines
    )
    return declared + (_CHECK if engines else "")


def engine_starts(
    program: Program, blobs: Mapping[int, tuple[str, int]], state: Callable[[int], str]
) -> str:
    """Statements of ``NAME_initialize`` that prepare the regions, or end those before a refusal."""
    texts = []
    for number, (index, (table, size)) in enumerate(blobs.items()):
        engine = program.layers[index].kernel.engine
        status = f"{LAYER_STATUS + 256 * index}"
        texts.append(f"""\
    if (*status == 0) {{
        int32_t cause = refused({table}, {size}u, {engine_magic(engine)}u, {engine}_format());
        if (cause == 0) {{
            cause = {engine}_init({table} + {HEADER_BYTES}, {size}u, {state(index)});
            cause = cause < -100 || cause > 100 ? {OTHER_STATUS} : cause;
        }}
        if (cause != 0) {{
            *status = {status} + (cause & 255);
            release(arena, {number}u);
        }}
    }}
""")
    return "".join(texts)


def engine_ends(program: Program, state: Callable[[int], str]) -> str:
    """What ends the first regions; nothing without serialized ones."""
    ended = [
        f"    if (count > {number}u) {{\n        {engine}_release({state(index)});\n    }}\n"
        for number, (index, engine) in enumerate(_engines(program))
    ]
    unused = "" if any("arena" in one for one in ended) else "    (void)arena;\n"
    text = f"\nstatic void release(uint8_t *arena, uint32_t count) {{\n{unused}{''.join(ended)}}}\n"
    return text if ended else ""


def release_text(program: Program) -> str:
    """``NAME_release``; nothing without serialized regions."""
    count = len(_engines(program))
    text = f"\nvoid {program.name}_release(uint8_t *arena) {{\n    release(arena, {count}u);\n}}\n"
    return text if count else ""


def _engines(program: Program) -> list[tuple[int, str]]:
    """Layer and engine of each serialized region."""
    layers = enumerate(program.layers)
    return [(index, layer.kernel.engine) for index, layer in layers if layer.kernel.engine]
