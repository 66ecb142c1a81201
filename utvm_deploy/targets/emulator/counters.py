"""The counters that the cycle model keeps: their names, order and groups, shared with C.

The plugin writes them as 64-bit little-endian words, in the order of ``NAMES``, to three places.
The first is the block in guest memory that the runtime's timer reads. The second is the snapshot
file, with one record for each time that the guest asked for one (``mark`` of a decoder in C). The
third is the report at exit.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ProbeError
from utvm_deploy.targets.contract.timing import AnyKind, Kind, VectorKind

#: The groups of the instruction mix, and the classes in each.
MIX_GROUPS: dict[str, tuple[AnyKind, ...]] = {
    "mix_load": (
        Kind.LOAD_WORD,
        Kind.LOAD_PART,
        Kind.LOAD_DOUBLE,
        Kind.LOAD_MULTIPLE,
        Kind.PRELOAD,
        Kind.FP_LOAD,
        Kind.FP_LOAD_DOUBLE,
        Kind.FP_LOAD_MULTIPLE,
        *(VectorKind.VECTOR_LOAD, VectorKind.VECTOR_LOAD_PARTS, VectorKind.VECTOR_GATHER),
    ),
    "mix_store": (
        Kind.STORE_WORD,
        Kind.STORE_PART,
        Kind.STORE_DOUBLE,
        Kind.STORE_MULTIPLE,
        Kind.FP_STORE,
        Kind.FP_STORE_DOUBLE,
        Kind.FP_STORE_MULTIPLE,
        *(VectorKind.VECTOR_STORE, VectorKind.VECTOR_STORE_PARTS, VectorKind.VECTOR_SCATTER),
    ),
    "mix_multiply": (
        Kind.MULTIPLY,
        Kind.MULTIPLY_ADD,
        Kind.MULTIPLY_LONG,
        Kind.MULTIPLY_ADD_LONG,
        Kind.DIVIDE,
    ),
    "mix_dsp": (
        Kind.EXTEND,
        Kind.EXTEND_ADD,
        Kind.FIELD_EXTRACT,
        Kind.FIELD_INSERT,
        Kind.REVERSE,
        Kind.PACK,
        Kind.PACK_TOP,
        Kind.SATURATE,
        Kind.SIMD,
        Kind.SIMD_SATURATE,
        VectorKind.CONDITIONAL_SELECT,
        *(kind for kind in VectorKind if kind >= VectorKind.VECTOR_SIMPLE),
    ),
    "mix_branch": (
        Kind.BRANCH,
        Kind.BRANCH_CONDITIONAL,
        Kind.COMPARE_BRANCH,
        Kind.CALL,
        Kind.BRANCH_INDIRECT,
        Kind.TABLE_BRANCH,
        *(VectorKind.LOOP_START, VectorKind.LOOP_END),
    ),
    "mix_fp": (
        Kind.FP_ADD,
        Kind.FP_MULTIPLY,
        Kind.FP_FUSED,
        Kind.FP_CHAINED,
        Kind.FP_DIVIDE,
        Kind.FP_ROOT,
        Kind.FP_CONSTANT,
        Kind.FP_MOVE,
        Kind.FP_TO_CORE,
        Kind.FP_FROM_CORE,
        Kind.FP_PAIR,
        Kind.FP_STATUS,
        Kind.FP64_ADD,
        Kind.FP64_MULTIPLY,
        Kind.FP64_FUSED,
        Kind.FP64_DIVIDE,
    ),
    "mix_unknown": (Kind.UNKNOWN,),
    "mix_other": (),  # what is in no other group: data processing
}

NAMES: tuple[str, ...] = (
    # Cycles with memory: what the guest's timer reads, so it stands first.
    "memory",
    "instructions",
    # Cycles of the pipeline alone.
    "core",
    # As ``memory``, but a multiplication never issues together with a load.
    "pessimistic",
    # As ``memory``, with instruction fetch, store buffer, unaligned accesses and data banks.
    "rich",
    # Of loads; each costs the board's miss cycles.
    "dcache_misses_flash",
    "dcache_misses_ram",
    # Of stores, which take the bus for a linefill; and cycles of waiting for such linefills.
    "dcache_store_misses",
    "linefill_waits",
    "icache_misses",
    "mispredictions",
    "bank_conflicts",
    "unaligned",
    "store_stalls",
    *MIX_GROUPS,
)
#: What the guest's ticks are.
HEADLINE = NAMES[0]
FIRST_MIX = NAMES.index("mix_load")

#: First word of the snapshot file, before the number of snapshots ever taken.
MAGIC = 0x55435943
#: Snapshots kept; older ones are overwritten.
SNAPSHOT_CAPACITY = 65536

_HEADER = struct.Struct("<QQ")
_RECORD = struct.Struct(f"<{len(NAMES)}Q")
#: Size of the block in guest memory, which the plugin fills.
BLOCK_BYTES = _RECORD.size


def mix_group(kind: AnyKind) -> int:
    """Where a class of instructions is counted, among ``MIX_GROUPS``."""
    for index, kinds in enumerate(MIX_GROUPS.values()):
        if kind in kinds:
            return index
    return list(MIX_GROUPS).index("mix_other")


@dataclass(frozen=True)
class Counters:
    """All counters, at one moment or between two."""

    values: tuple[int, ...]

    def __getitem__(self, name: str) -> int:
        return self.values[NAMES.index(name)]

    def __sub__(self, earlier: Counters) -> Counters:
        pairs = zip(self.values, earlier.values, strict=True)
        return Counters(tuple(later - before for later, before in pairs))

    def as_dict(self) -> dict[str, int]:
        """Name -> count."""
        return dict(zip(NAMES, self.values, strict=True))


def read_snapshots(path: Path) -> list[Counters]:
    """Every snapshot that the plugin's file still holds, oldest first.

    The file may be read while the emulator runs: a snapshot is whole before it is counted.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or _HEADER.unpack(head)[0] != MAGIC:
                raise ProbeError(
                    f"{path} holds no snapshots of the cycle model; delete it and run again"
                )
            taken = _HEADER.unpack(head)[1]
            data = file.read(min(taken, SNAPSHOT_CAPACITY) * _RECORD.size)
    except OSError as error:
        raise ProbeError(f"cannot read the snapshots {path}: {error.strerror}") from error
    return [
        Counters(_RECORD.unpack_from(data, index % SNAPSHOT_CAPACITY * _RECORD.size))
        for index in range(max(0, taken - SNAPSHOT_CAPACITY), taken)
    ]


def between(snapshots: Sequence[Counters], ticks: Sequence[int]) -> list[Counters]:
    """The counts of each of the calls that took these ticks, the latest run of them.

    A runtime's timer takes one snapshot before and one after each call, and reports the difference
    of ``memory``. Raises ProbeError if there is no such run of calls.
    """
    wanted = list(ticks)
    for end in range(len(snapshots), 2 * len(wanted) - 1, -1):
        run = snapshots[end - 2 * len(wanted) : end]
        found = _calls(run)
        if [one[HEADLINE] for one in found] == wanted:
            return found
    # A run that was sent in several parts has other calls in between.
    for end in (len(snapshots), len(snapshots) - 1):
        calls = _calls(snapshots[end % 2 : end])
        left = wanted.copy()
        found = []
        while calls and left:
            call = calls.pop()
            if call[HEADLINE] == left[-1]:
                left.pop()
                found.append(call)
        if not left:
            return found[::-1]
    raise ProbeError(
        f"the cycle model's {len(snapshots)} snapshots hold no run of {len(wanted)} calls with the "
        "ticks that the device reported; run fewer calls at once"
    )


def _calls(run: Sequence[Counters]) -> list[Counters]:
    return [after - before for before, after in zip(run[::2], run[1::2], strict=True)]


def read_report(path: Path) -> dict[str, Any]:
    """The JSON report that the plugin wrote when the emulator ended."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ProbeError(
            f"the cycle model left no report in {path} ({error}); the emulator must end by itself "
            "or be asked to, not be killed"
        ) from error
    assert isinstance(report, dict)
    return report
