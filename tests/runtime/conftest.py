"""Building the runtime for its tests: every compiler warning is an error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.link.make_vectors import VECTORS
from utvm_deploy.base.paths import runtime_dir

HERE = Path(__file__).parent
WARNINGS = [
    *("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"),
    *("-Wmissing-prototypes", "-Wundef", "-Wconversion"),
]
SANITIZERS = [
    *("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # wire addresses have 32 bits
    *("-fno-pie", "-no-pie"),
]


def build(program: Path, *sources: Path, flags: tuple[str, ...] = ()) -> Path:
    """The runtime and ``sources`` to a program with sanitizers."""
    command = ["gcc", *WARNINGS, *SANITIZERS, f"-I{runtime_dir()}", f"-I{program.parent}"]
    command += [*flags, *map(str, (*sources, *sorted(runtime_dir().glob("*.c")))), "-o"]
    subprocess.run([*command, str(program)], check=True, timeout=120)
    return program


def vectors_header() -> Iterator[str]:
    """vectors.json as C."""
    vectors = json.loads(VECTORS.read_text())

    def array(data: str) -> str:
        values = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(data)) or "0"
        return f"(const uint8_t[]){{{values}}}"

    yield "#include <stdint.h>"
    yield "struct crc_vector { const uint8_t *data; uint32_t size; uint32_t crc; };"
    yield "static const struct crc_vector crc_vectors[] = {"
    for data, crc in vectors["crc"]:
        yield f"{{{array(data)}, {len(data) // 2}, {crc}u}},"
    yield "};"
    yield "struct cobs_vector { const uint8_t *data; uint32_t data_size;"
    yield "    const uint8_t *encoded; uint32_t encoded_size; };"
    yield "static const struct cobs_vector cobs_vectors[] = {"
    for data, encoded in vectors["cobs"]:
        yield f"{{{array(data)}, {len(data) // 2}, {array(encoded)}, {len(encoded) // 2}}},"
    yield "};"
    yield "struct frame_vector { uint32_t opcode, sequence, session;"
    yield "    const uint8_t *payload; uint32_t payload_size;"
    yield "    const uint8_t *encoded; uint32_t encoded_size; };"
    yield "static const struct frame_vector frame_vectors[] = {"
    for frame in vectors["frames"]:
        yield f"{{{frame['opcode']}u, {frame['sequence']}u, {frame['session']}u,"
        yield f"{array(frame['payload'])}, {len(frame['payload']) // 2},"
        yield f"{array(frame['encoded'])}, {len(frame['encoded']) // 2}}},"
    yield "};"
    yield "struct fault_vector { struct utvm_fault fault;"
    yield "    const uint8_t *record; uint32_t record_size; };"
    yield "static const struct fault_vector fault_vectors[] = {"
    for fault in vectors["faults"]:
        words = ", ".join(f"{word}u" for word in fault["words"]) or "0"
        yield f"{{{{{fault['architecture']}u, {len(fault['words'])}u, {{{words}}}}},"
        yield f"{array(fault['record'])}, {len(fault['record']) // 2}}},"
    yield "};"


@pytest.fixture(scope="session")
def unit_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "vectors.h").write_text("\n".join(vectors_header()) + "\n")
    return build(folder / "unit", HERE / "unit.c", HERE / "memory_port.c")
