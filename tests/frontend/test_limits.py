"""Files made to cost much: each is refused, or imported, within ten seconds and 1 GiB.

A child imports them, with the memory that it may have set as a limit by the system.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import limits
from utvm_deploy.frontend.tflite import load_model

MOST_BYTES = 1024**3
DEADLINE_S = 10.0
#: Beyond the deadline, for a child that has to start on a busy machine.
MARGIN_S = 50.0

# The import as `utvm inspect` does it; limits hold from after Python's own start.
_CHILD = """
import os, resource, signal, sys
from utvm_deploy.results.inspecting.facts import inspect_model
from utvm_deploy.frontend.tflite import load_model
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * os.sysconf("SC_PAGE_SIZE") + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[3]))  # of its own time, whatever else runs
from utvm_deploy.base.errors import ModelError
try:
    inspect_model(load_model(sys.argv[1]))
    print("imported")
except ModelError as exc:
    print(f"refused: {exc}")
"""


def said_of(path: Path) -> str:
    """What the import says of a file; fails if it takes too much."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), str(MOST_BYTES), str(DEADLINE_S)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S + MARGIN_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()
    return line


class Bomb:
    """A flatbuffer in which many tables name one vector, written leaf by leaf."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def table(self, name: str, **fields: int) -> int:
        getattr(tflite, f"{name}Start")(self.builder)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(self.builder, value)
        return int(getattr(tflite, f"{name}End")(self.builder))

    def numbers(self, array: np.ndarray) -> int:
        return int(self.builder.CreateNumpyVector(array))

    def offsets(self, offsets: list[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def save(
        self, path: Path, tensors: list[int], operators: list[int], buffers: list[int], code: int
    ) -> Path:
        codes = self.offsets([self.table("OperatorCode", BuiltinCode=code, Version=1)])
        ends = self.numbers(np.zeros(1, np.int32)), self.numbers(np.ones(1, np.int32))
        tensor_list, operator_list = self.offsets(tensors), self.offsets(operators)
        subgraph = self.table(
            "SubGraph",
            Tensors=tensor_list,
            Operators=operator_list,
            Inputs=ends[0],
            Outputs=ends[1],
        )
        subgraphs, buffer_list = self.offsets([subgraph]), self.offsets(buffers)
        root = self.table(
            "Model", Version=3, OperatorCodes=codes, Subgraphs=subgraphs, Buffers=buffer_list
        )
        self.builder.Finish(root, b"TFL3")
        path.write_bytes(self.builder.Output())
        return path


def one_shared_operand_list(path: Path) -> Path:
    """4,000 operators that all read the same million tensors."""
    b = Bomb()
    operands = b.numbers(np.zeros(2**20, np.int32))
    shape = b.numbers(np.ones(4, np.int32))
    tensor = b.table("Tensor", Shape=shape, Type=tflite.TensorType.INT8)
    operator = b.table("Operator", Inputs=operands, Outputs=operands)
    return b.save(path, [tensor] * 4, [operator] * 4000, [b.table("Buffer")], 2)


def one_shared_scale_list(path: Path) -> Path:
    """16,000 tensors with the same 100,000 scales."""
    b = Bomb()
    scales, zeros = b.numbers(np.ones(10**5, np.float32)), b.numbers(np.zeros(10**5, np.int64))
    quantization = b.table("QuantizationParameters", Scale=scales, ZeroPoint=zeros)
    shape = b.numbers(np.array([10**5], np.int32))
    tensor = b.table("Tensor", Shape=shape, Quantization=quantization, Type=tflite.TensorType.INT8)
    return b.save(path, [tensor] * 16_000, [operator(b)], [b.table("Buffer")], 0)


def one_shared_name(path: Path) -> Path:
    """16,000 tensors with the same long name that cannot be printed."""
    b = Bomb()
    name, shape = b.builder.CreateString("\n" * 4000), b.numbers(np.ones(4, np.int32))
    tensor = b.table("Tensor", Shape=shape, Name=name, Type=tflite.TensorType.INT8)
    return b.save(path, [tensor] * 16_000, [operator(b)], [b.table("Buffer")], 0)


def one_shared_buffer(path: Path) -> Path:
    """16,000 constants of 32 MiB, all of the same bytes."""
    b = Bomb()
    data = b.numbers(np.zeros(2**25, np.uint8))
    shape = b.numbers(np.array([2**23], np.int32))
    tensor = b.table("Tensor", Shape=shape, Type=tflite.TensorType.INT32)
    return b.save(path, [tensor] * 16_000, [operator(b)], [b.table("Buffer", Data=data)], 0)


def too_many_operators(path: Path) -> Path:
    b = Bomb()
    shape = b.numbers(np.ones(4, np.int32))
    tensor = b.table("Tensor", Shape=shape, Type=tflite.TensorType.INT8)
    return b.save(path, [tensor] * 2, [operator(b)] * 2_000_000, [b.table("Buffer")], 0)


def operator(b: Bomb) -> int:
    operands = b.numbers(np.zeros(1, np.int32)), b.numbers(np.ones(1, np.int32))
    return b.table("Operator", Inputs=operands[0], Outputs=operands[1])


def a_large_file(path: Path) -> Path:
    with path.open("wb") as file:
        file.write(b"\x1c\0\0\0TFL3")
        file.truncate(3 * 2**30)  # takes no place on the disk
    return path


def long_dimensions_sliced_often(path: Path) -> Path:
    """A position is described by a number: 300 slices of four million of them."""
    m = ModelWriter()
    x = m.input((2**22,))
    for _ in range(300):
        out = m.tensor((2**22,), "int8", 0.1)
        bounds = [m.constant(np.array([v], np.int32)) for v in (0, 2**22, 1)]
        fields = {"BeginMask": 0, "EndMask": 0}
        m.operator("STRIDED_SLICE", [x, *bounds], [out], ("StridedSliceOptions", fields))
        x = out
    m.output(x)
    return m.save(path)


def split_into_thousands(path: Path) -> Path:
    m = ModelWriter()
    x, axis = m.input((1, 12_000)), m.constant(np.array(1, np.int32))
    parts = [m.tensor((1, 1), "int8", 0.1) for _ in range(12_000)]
    m.operator("SPLIT", [axis, x], parts, ("SplitOptions", {"NumSplits": len(parts)}))
    m.output(parts[0])
    return m.save(path)


def resized_beyond_measure(path: Path) -> Path:
    m = ModelWriter()
    x, size = m.input((1, 2, 2, 1)), m.constant(np.array([2**30, 2**30], np.int32))
    out = m.tensor((1, 4, 4, 1), "int8", 0.1)
    options = ("ResizeNearestNeighborOptions", {"AlignCorners": False, "HalfPixelCenters": False})
    m.operator("RESIZE_NEAREST_NEIGHBOR", [x, size], [out], options)
    m.output(out)
    return m.save(path)


def many_gathered_positions(path: Path) -> Path:
    """One list of a million positions, taken from by 500 operators."""
    m = ModelWriter()
    x, indices = m.input((4, 4)), m.constant(np.zeros(2**20, np.int32))
    for _ in range(500):
        out = m.tensor((2**20, 4), "int8", 0.1)
        m.operator("GATHER", [x, indices], [out], ("GatherOptions", {"Axis": 0}))
        m.output(out)
    return m.save(path)


def shapes_multiplied(path: Path) -> Path:
    """Whole numbers are computed at import: here a product of ten thousand times as many."""
    m = ModelWriter()
    a = m.constant(np.zeros((2**20, 1), np.int32))
    b = m.constant(np.zeros((1, 2**20), np.int32))
    out = m.tensor((4,), "int32")
    m.operator("MUL", [a, b], [out], ("MulOptions", {}))
    x = m.input((4,))
    y = m.tensor((4,), "int8", 0.1)
    m.operator("RESHAPE", [x, out], [y], ("ReshapeOptions", {}))
    m.output(y)
    return m.save(path)


def _of_blocks(path: Path, kind: str, shape: tuple[int, ...], blocks: int, margin: int) -> Path:
    m = ModelWriter()
    operands = [m.constant(np.array(o, np.int32)) for o in ([blocks], [[0, margin]])]
    m.output(m.node(kind, [m.input(shape), *operands], (2, 4, 4)))
    return m.save(path)


def padded_beyond_measure(path: Path) -> Path:
    """Two thousand million rows to be cut into blocks."""
    return _of_blocks(path, "SPACE_TO_BATCH_ND", (1, 4, 4), 2, 2**31 - 4)


def cropped_beyond_measure(path: Path) -> Path:
    """Sixty-seven million rows, all but eight of which are cropped."""
    return _of_blocks(path, "BATCH_TO_SPACE_ND", (2**12, 2**14, 1), 2**12, 2**26 - 8)


#: What is written, and what is said of it.
BOMBS: dict[Callable[[Path], Path], str] = {
    one_shared_operand_list: "lists of the file hold more than",
    one_shared_scale_list: "lists of the file hold more than",
    one_shared_name: "refused",
    one_shared_buffer: "refused",
    too_many_operators: "operators, more than 4,096",
    a_large_file: "bytes, more than 134,217,728",
    long_dimensions_sliced_often: "add up to more than",
    split_into_thousands: "add up to more than",
    resized_beyond_measure: "its size is",
    padded_beyond_measure: "but the file says",
    cropped_beyond_measure: "but the file says",
    many_gathered_positions: "add up to more than",
    shapes_multiplied: "do not make (4,)",
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_costly_file(bomb: Callable[[Path], Path], tmp_path: Path) -> None:
    said = said_of(bomb(tmp_path / "bomb.tflite"))
    assert BOMBS[bomb] in said and len(said) < 10_000


def test_data_beside_the_file(tmp_path: Path) -> None:
    b = Bomb()
    b.builder.StartObject(11)
    b.builder.PrependUint32Slot(10, 1, 0)  # Tensor.external_buffer
    tensor = b.builder.EndObject()
    path = b.save(tmp_path / "m.tflite", [tensor] * 2, [operator(b)], [b.table("Buffer")], 0)
    with pytest.raises(ModelError, match="has its data in another file"):
        load_model(path)


def test_a_buffer_beyond_the_file(tmp_path: Path) -> None:
    b = Bomb()
    tensor = b.table("Tensor", Shape=b.numbers(np.ones(1, np.int32)), Type=tflite.TensorType.INT8)
    buffer = b.table("Buffer", Offset=200, Size=2**62)
    path = b.save(tmp_path / "m.tflite", [tensor] * 2, [operator(b)], [buffer], 0)
    with pytest.raises(ModelError, match=r"buffer 0 ends at byte \d+, but the file has"):
        load_model(path)


def test_only_so_many_problems_are_told(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4))
    for _ in range(3 * limits.MAX_TOLD):
        out = m.tensor((1, 4), "int8", 0.1)
        m.operator("RNN", [x], [out])
        x = out
    m.output(x)
    with pytest.raises(ModelError) as caught:
        load_model(m.save(tmp_path / "m.tflite"))
    said = str(caught.value)
    assert "150 operators cannot be imported" in said and "48, 49 and 100 more (RNN): use" in said
    assert said.count("use UNIDIRECTIONAL_SEQUENCE_LSTM") == 1


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("HASHTABLE", "look up in your own code"),
        ("WHILE", "export a constant number of steps"),
        ("no_such_operator", "custom operators are not part of the format"),
        ("STABLEHLO_ADD", "TFLite's own operators"),
        ("COMPLEX_ABS", "compute it in your own code"),
    ],
)
def test_every_refusal_says_what_to_do(kind: str, advice: str, tmp_path: Path) -> None:
    m = ModelWriter()
    x, out = m.input((1, 4)), m.tensor((1, 4), "int8", 0.1, name="made")
    m.operator(kind, [x], [out])
    m.output(out)
    with pytest.raises(ModelError) as caught:
        load_model(m.save(tmp_path / "m.tflite"))
    assert "operator 0 (" in str(caught.value) and "makes 'made'" in str(caught.value)
    assert advice in str(caught.value)
