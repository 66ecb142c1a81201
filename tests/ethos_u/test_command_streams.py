"""Command streams of Ethos-U: good ones pass, and each defect is refused in a sentence."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from make_golden import CONFIGURATIONS, DEDICATED, golden

from utvm_deploy.backends.ethos_u.check import NpuProgram, Place, checked
from utvm_deploy.backends.ethos_u.configurations import MEMORY_MODES, configuration
from utvm_deploy.backends.ethos_u.opcodes import COMMANDS_OF_U55, COMMANDS_OF_U85, HAS_PAYLOAD
from utvm_deploy.backends.ethos_u.vela import VelaRefuses, compiled_by_vela, program_in
from utvm_deploy.base import process
from utvm_deploy.base.errors import CompileError, MissingTool, UsageError

SHARED = Path(os.environ.get("UTVM_SHARED", "/nowhere")) / "models"
HEADER_WORDS = 8


def stored(name: str) -> NpuProgram:
    return program_in(golden(name), configuration(name))


def changed(program: NpuProgram, command: str, change: Callable[[int], int]) -> NpuProgram:
    """The program with another value of each command of this name."""
    names = COMMANDS_OF_U85 if "u85" in program.configuration.name else COMMANDS_OF_U55
    words = list(struct.unpack(f"<{len(program.payload) // 4}I", program.payload))
    place, found = HEADER_WORDS, 0
    while place < len(words):
        number = words[place] & 0xC3FF
        if names[number] == command:
            found += 1
            if number >= HAS_PAYLOAD:
                words[place + 1] = change(words[place + 1]) & 0xFFFFFFFF
            else:
                words[place] = words[place] & 0xFFFF | (change(words[place] >> 16) & 0xFFFF) << 16
        place += 2 if number >= HAS_PAYLOAD else 1
    assert found, command
    return replace(program, payload=struct.pack(f"<{len(words)}I", *words))


def with_word(program: NpuProgram, place: int, word: int) -> NpuProgram:
    payload = bytearray(program.payload)
    payload[4 * place : 4 * place + 4] = struct.pack("<I", word)
    return replace(program, payload=bytes(payload))


@pytest.mark.parametrize("name", (*CONFIGURATIONS, DEDICATED))
def test_a_stream_of_vela_passes(name: str) -> None:
    stream = checked(stored(name))
    kinds = {one.name for one in stream.operations}
    assert kinds >= {"CONV", "DEPTHWISE", "POOL", "ELEMENTWISE", "DMA_START"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize(
    ("command", "change", "message"),
    [
        ("OFM_BASE0", lambda one: one + 0x100000, "of region"),
        ("OFM_BASE0", lambda one: one + 0x100, "before anything writes it"),
        ("OFM_STRIDE_Y", lambda one: 0, "twice"),
        ("OFM_REGION", lambda one: 0, "writes to the weights"),
        ("OFM_REGION", lambda one: 6, "does not exist"),
        ("OFM_HEIGHT_M1", lambda one: 0, "before anything writes it"),
        ("IFM_REGION", lambda one: 5, "does not exist"),
        ("IFM_PAD_TOP", lambda one: one + 40, "larger than its input"),
        ("SCALE_LENGTH", lambda one: 16, "bytes of scales"),
        ("SCALE_BASE", lambda one: one + 4, "SCALE_BASE"),
        ("WEIGHT_LENGTH", lambda one: 0, "0 bytes of weights"),
        ("WEIGHT_BASE", lambda one: one + 0x400000, "of region"),
        ("DMA0_LEN", lambda one: one + 0x100000, "bytes"),
        ("DMA0_SRC", lambda one: one + 0x100000, "of region"),
    ],
)
def test_a_changed_register_is_refused(
    name: str, command: str, change: Callable[[int], int], message: str
) -> None:
    program = stored(name)
    if command == "WEIGHT_LENGTH":  # of each core of the NPU
        program = changed(program, "WEIGHT1_LENGTH", change) if "512" in name else program
    with pytest.raises(CompileError, match=message) as found:
        checked(changed(program, command, change))
    assert "\n" not in str(found.value) and "leave --ethos-u out" in str(found.value)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_words_that_no_stream_has_are_refused(name: str) -> None:
    program = stored(name)
    last = len(program.payload) // 4 - 1
    for place, word, message in (
        (0, 0x32504F43, "does not begin with COP1"),
        (4, 0x77, "driver action 119"),
        (2, 0x1234, "is for product 0 with 16 MACs"),
        (HEADER_WORDS, 0x01FF, "unknown command 0x01ff"),
        (HEADER_WORDS, 0x3C00, "unknown command"),
        (last, 0x0011, "no STOP"),
        (last, 0x0000, "stops at byte"),
        (HEADER_WORDS, 0xFFFF0000, "stops at byte 0"),
    ):
        with pytest.raises(CompileError, match=message):
            checked(with_word(program, place, word))
    for payload in (b"", program.payload[:-1], program.payload[:-8], program.payload + bytes(4)):
        with pytest.raises(CompileError):
            checked(replace(program, payload=payload))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_model_s_ends_are_checked(name: str) -> None:
    program = stored(name)
    (output,), (given,) = program.outputs, program.inputs
    for changes, message in (
        ({"outputs": (Place(output.region, program.scratch_bytes - 1, 2),)}, "has a tensor"),
        ({"outputs": (replace(output, size_bytes=output.size_bytes + 1),)}, "an output"),
        ({"inputs": (replace(given, size_bytes=given.size_bytes - 1),)}, "before anything writes"),
        ({"weights": program.weights[: len(program.weights) // 2]}, "region 0"),
        ({"scratch_bytes": program.scratch_bytes // 2}, "of region"),
    ):
        with pytest.raises(CompileError, match=message):
            checked(replace(program, **changes))


def test_an_output_that_is_written_twice_is_refused() -> None:
    """The last operation is there again: its bytes are those of the first one."""
    program = stored("ethos-u55-128")
    words = list(struct.unpack(f"<{len(program.payload) // 4}I", program.payload))
    words.insert(-1, words[-2])
    assert COMMANDS_OF_U55[words[-2] & 0x3FF] == "OP_ELEMENTWISE"
    words[HEADER_WORDS - 1] += 1 << 16  # the length
    with pytest.raises(CompileError, match="of an output again"):
        checked(replace(program, payload=struct.pack(f"<{len(words)}I", *words)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, cmd_data=b"COP1")
    with pytest.raises(CompileError, match=r"other\.npz is not what Vela 5\.2 writes"):
        program_in(path, configuration("ethos-u55-128"))
    for data in (b"nothing", b"", golden("ethos-u55-128").read_bytes()[:-300]):
        path.write_bytes(data)
        with pytest.raises(CompileError, match="is not what Vela"):
            program_in(path, configuration("ethos-u55-128"))


def test_names_of_configurations() -> None:
    assert configuration("ethos-u85-2048,sram-only").memory_mode == "sram-only"
    with pytest.raises(UsageError, match="'ethos-u55-512'; give one of ethos-u55-32, "):
        configuration("ethos-u55-512")
    for mode in ("flash", "dedicated-sram"):
        told = f"'{mode}' of ethos-u55-32; give one of shared-sram, sram-only$"
        with pytest.raises(UsageError, match=told):
            configuration(f"ethos-u55-32,{mode}")


def test_the_memory_of_a_cache() -> None:
    memories = {"sram2": (0x1000, 300 << 10)}
    found = configuration("ethos-u65-256,dedicated-sram,sram2", memories)
    assert (found.cache_limit, found.system) == (300 << 10, "Ethos_U65_High_End")
    sized = configuration("ethos-u85-256,dedicated-sram-256kb,sram2", memories)
    assert sized.cache_limit == 256 << 10 and sized.text.endswith(",sram2")
    assert configuration("ethos-u85-256,dedicated-sram-256kb").cache_limit == 0
    for text in ("ethos-u65-256,dedicated-sram,ram", "ethos-u65-256,sram-only,sram2"):
        with pytest.raises(UsageError, match=r"no memory '.*' for a cache: .* there is sram2$"):
            configuration(text, memories)


def test_vela_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports compile a model several times; what Vela refuses is kept, too."""
    asked = []

    def run(argv: list[str], **_: object) -> process.Completed:
        asked.append(argv)
        return process.Completed(("vela",), 1, "no\n", "")

    monkeypatch.setattr(process, "run", run)
    chosen = configuration("ethos-u55-128")
    for _ in range(2):
        with pytest.raises(VelaRefuses, match="Vela refuses a region: no"):
            compiled_by_vela(b"asked once", "a region", chosen)
    assert len(asked) == 1
    with pytest.raises(VelaRefuses):
        compiled_by_vela(b"another", "a region", chosen)
    assert len(asked) == 2


def test_without_vela_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utvm_deploy.base.process.which", lambda program: None)
    with pytest.raises(MissingTool, match=r"pip install 'utvm-deploy\[ethos-u\]'"):
        compiled_by_vela(b"", "model", configuration("ethos-u55-128"))


@pytest.mark.skipif(
    process.which("vela") is None,
    reason="needs Vela: pip install 'utvm-deploy[ethos-u]'",
)
@pytest.mark.parametrize(
    ("model", "modes"),
    [
        ("kws_ref_model", tuple(MEMORY_MODES)),
        ("vww_96_int8", ("shared-sram", "dedicated-sram")),
        pytest.param("pretrainedResnet_quant", ("dedicated-sram",), marks=pytest.mark.slow),
    ],
)
def test_streams_of_larger_models_pass(model: str, modes: tuple[str, ...]) -> None:
    path = SHARED / f"{model}.tflite"
    if not path.is_file():
        pytest.skip(f"needs {model}.tflite: set UTVM_SHARED to a folder with models/")
    for name, mode in product(("ethos-u55-256", "ethos-u65-512", "ethos-u85-2048"), modes):
        has_cache = mode.startswith("dedicated")
        if has_cache and "u55" in name:
            continue
        chosen = configuration(f"{name},{mode}")
        program, estimate = compiled_by_vela(path.read_bytes(), model, chosen)
        assert bool(program.cache_bytes) == has_cache
        assert checked(program).operations and 0 < estimate.cycles < 1 << 30
