"""A region as bytes, which a small engine in C runs: the other way, besides C statements.

The bytes are a table in flash, with a header of four words, little endian. These are the magic
number of the engine, the CRC-32 of all that follows, the version of the format, and the number of
bytes. ``NAME_initialize`` checks them before the engine gets the bytes.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import replace

import numpy as np

from utvm_deploy.backends.calls import call
from utvm_deploy.backends.checks import C_NAME
from utvm_deploy.backends.interface import MOST_BYTES, Match
from utvm_deploy.base.errors import PluginError
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.external_library import engine_magic

_LARGEST_VERSION = 0xFFFF_FFFF
#: The header has 16 bytes: behind it, the bytes are aligned to 8.
_ALIGNMENT = 8


def serialized(
    match: Match,
    engine: str,
    blob: bytes,
    *,
    version: int,
    scratch_bytes: int = 0,
    state_bytes: int = 0,
) -> KernelCall:
    """The call that has ``engine`` run ``blob`` for a match.

    ``blob`` has any format, such as JSON or binary, of the given ``version``. The names of four C
    functions begin with ``engine``, and ``Backend.code`` defines them:

    - uint32_t ENGINE_format(void): the newest version that it can run.
    - int32_t ENGINE_init(const uint8_t *blob, uint32_t bytes, void *state): prepares a region, once
      after each reset. The address of ``blob`` is aligned to 8 bytes. It may be kept.
    - int32_t ENGINE_run(void *state, const void *const *inputs, void *const *outputs,
      void *scratch): computes ``match.outputs`` from ``match.inputs``.
    - void ENGINE_release(void *state): ends what ENGINE_init began.

    A status is 0 for success, else -100 to 100. Each region has separate
    ``state_bytes``. What is in ``scratch_bytes`` is lost after the call. Both are aligned to 8
    bytes; without bytes, the pointer is null.
    """
    if not isinstance(engine, str) or not C_NAME.fullmatch(engine):
        raise PluginError(f"serialized(): engine {engine!r} is not a name in C; use letters and _")
    if not isinstance(blob, bytes | bytearray) or not blob:
        raise PluginError("serialized(): blob has no bytes; give what the engine runs")
    for name, value, most in (
        ("version", version, _LARGEST_VERSION),
        ("state_bytes", state_bytes, MOST_BYTES),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise PluginError(f"serialized(): {name} is {value!r}; give 0 to {most}")
    inputs, outputs = (
        ", ".join(f"{kind}_{i}" for i, _ in enumerate(numbers)) or "(void *)0"
        for kind, numbers in (("input", match.inputs), ("output", match.outputs))
    )
    body = f"""\
const void *const inputs[] = {{{inputs}}};
void *const outputs[] = {{{outputs}}};
return {engine}_run(state, inputs, outputs, {"scratch" if scratch_bytes else "(void *)0"});"""
    counted = struct.pack("<II", version, len(blob)) + bytes(blob)
    header = struct.pack("<II", engine_magic(engine), binascii.crc32(counted))
    table = np.frombuffer(header + counted, np.uint8)
    made = call(match, f"{engine}_run", body, tables={"blob": table}, scratch_bytes=scratch_bytes)
    assert isinstance(made.kernel, LibraryKernel)
    arguments = tuple(
        replace(one, alignment=_ALIGNMENT) if isinstance(one, ConstantArgument) else one
        for one in made.arguments
    )
    kernel = replace(made.kernel, engine=engine, state_bytes=state_bytes)
    return replace(made, kernel=kernel, arguments=arguments)
