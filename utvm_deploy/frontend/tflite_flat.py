"""A .tflite file whose main subgraph is replaced by one without control flow.

New tables are put in front of the file's bytes, which stay as they are: a flatbuffer only refers
to what comes after. So weights, scales and options are still the file's, and are there once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import flatbuffers
import numpy as np
import tflite

from utvm_deploy.frontend.flat_model import FlatModel, FlatOperator, FlatTensor, Place
from utvm_deploy.frontend.qdq.tflite_write import BUFFER_ALIGNMENT, ModelFile, Serializer

# What is kept of an operator and of a tensor: field -> its place in the schema's table, and its
# type, which is None for what lies elsewhere in the file.
_OF_OPERATOR: Mapping[str, tuple[int, str | None]] = {
    "BuiltinOptionsType": (3, "B"),
    "BuiltinOptions": (4, None),
    "CustomOptions": (5, None),
    "CustomOptionsFormat": (6, "b"),
    "MutatingVariableInputs": (7, None),
    "BuiltinOptions2Type": (11, "B"),
    "BuiltinOptions2": (12, None),
}
_OF_TENSOR: Mapping[str, tuple[int, str | None]] = {
    "Type": (1, "b"),
    "Quantization": (4, None),
    "HasRank": (8, "?"),
}
_OF_MODEL: Mapping[str, tuple[int, str | None]] = {
    "Version": (0, "I"),
    "Description": (3, None),
    "Metadata": (6, None),
}
_CALL_ONCE = "CALL_ONCE"


def with_main(data: bytes, flat: FlatModel, once: Mapping[int, int]) -> bytes:
    """The file with this main subgraph, and with those that CALL_ONCE calls behind it.

    ``once`` has the position of each CALL_ONCE in the main subgraph, and the subgraph it calls.
    """
    return _Front(data, flat, once).finish()


class _Front(Serializer):
    """Writes tables in front of a file, whose tables are referred to."""

    def __init__(self, data: bytes, flat: FlatModel, once: Mapping[int, int]) -> None:
        super().__init__(ModelFile(""))
        self.file = data + bytes(-len(data) % BUFFER_ALIGNMENT)
        self.builder = flatbuffers.Builder(1024)
        # As if the file had been written already: all that follows comes in front of it.
        self.builder.Bytes = bytearray(1024) + self.file
        self.builder.head = 1024
        self.builder.minalign = BUFFER_ALIGNMENT
        self.flat, self.once = flat, once
        self.kept = sorted(set(once.values()))
        self.old: Any = tflite.Model.GetRootAs(self.file, 0)
        self.codes = [
            self._place(self.old.OperatorCodes(i)) for i in range(self.old.OperatorCodesLength())
        ]
        self.buffers = [self._place(self.old.Buffers(i)) for i in range(self.old.BuffersLength())]

    def finish(self) -> bytes:
        """The whole file."""
        main = self._main()
        kept = [self._place(self.old.Subgraphs(number)) for number in self.kept]
        root = self._table(
            "Model",
            {
                **self._fields(self.old, _OF_MODEL),
                "OperatorCodes": self._offsets(self.codes),
                "Subgraphs": self._offsets([main, *kept]),
                "Buffers": self._offsets(self.buffers),
            },
        )
        self.builder.Finish(root, b"TFL3")
        made = self.builder.Output()
        self._move_outer_buffers(made, len(made) - len(self.file))
        return bytes(made)

    def _main(self) -> int:
        tensors = [self._tensor(tensor) for tensor in self.flat.tensors]
        operators = [self._operator(operator) for operator in self.flat.operators]
        return self._table(
            "SubGraph",
            {
                "Tensors": self._offsets(tensors),
                "Inputs": self.numbers(self.flat.inputs, np.int32),
                "Outputs": self.numbers(self.flat.outputs, np.int32),
                "Operators": self._offsets(operators),
                "Name": "main",
            },
        )

    def _tensor(self, flat: FlatTensor) -> int:
        tensor, old = flat.tensor, self._old_tensor(flat.place)
        if flat.is_unchanged:
            return self._place(old)
        number = 0
        if tensor.data is not None:
            number = len(self.buffers)
            stored = tensor.element.packed(tensor.data)
            self.buffers.append(self._table("Buffer", {"Data": self._raw(stored)}))
        kept = {} if old is None else self._fields(old, _OF_TENSOR)
        return self._table(
            "Tensor",
            {
                "Type": getattr(tflite.TensorType, tensor.dtype.upper()),
                **kept,
                "Shape": self.numbers(tensor.shape, np.int32),
                "Buffer": number,
                "Name": tensor.name,
            },
        )

    def _operator(self, flat: FlatOperator) -> int:
        fields: dict[str, Any] = {}
        if flat.place is None:
            code = self._code(flat.kind)
            if flat.options is not None:
                fields = self.options_fields(flat.options)
        else:
            old = self.old.Subgraphs(flat.place[0]).Operators(flat.place[1])
            code, fields = old.OpcodeIndex(), self._fields(old, _OF_OPERATOR)
        if flat.kind == _CALL_ONCE and flat.place is not None:
            called = 1 + self.kept.index(self.once[flat.place[1]])
            fields |= self.options_fields(("CallOnceOptions", {"InitSubgraphIndex": called}))
        inputs = [-1 if one is None else one for one in flat.inputs]
        fields["OpcodeIndex"] = code
        fields["Inputs"] = self.numbers(inputs, np.int32)
        fields["Outputs"] = self.numbers(flat.outputs, np.int32)
        if flat.intermediates:
            fields["Intermediates"] = self.numbers(flat.intermediates, np.int32)
        return self._table("Operator", fields)

    def _code(self, kind: str) -> int:
        """The number of an operator code of the file, which gets one more if it has none."""
        if kind not in self.kinds:
            self.kinds.append(kind)
            self.codes.append(self._table("OperatorCode", self.code_fields(kind)))
        return len(self.codes) - len(self.kinds) + self.kinds.index(kind)

    def _old_tensor(self, place: Place | None) -> Any:
        return None if place is None else self.old.Subgraphs(place[0]).Tensors(place[1])

    def _fields(self, table: Any, kept: Mapping[str, tuple[int, str | None]]) -> dict[str, Any]:
        """Fields of a table of the file, as the schema's writers take them."""
        found: dict[str, Any] = {}
        inner = table._tab
        for name, (slot, kind) in kept.items():
            offset = inner.Offset(4 + 2 * slot)
            if offset and kind is None:
                found[name] = len(self.file) - inner.Indirect(inner.Pos + offset)
            elif offset:
                (found[name],) = struct.unpack_from(f"<{kind}", self.file, inner.Pos + offset)
        return found

    def _place(self, table: Any) -> int:
        """Where a table of the file is, as the builder counts: from the end."""
        return len(self.file) - int(table._tab.Pos)

    def _move_outer_buffers(self, made: bytearray, moved: int) -> None:
        """Buffers behind the file's tables are named by their place in the file, which moves."""
        for number in range(self.old.BuffersLength()):
            buffer = self.old.Buffers(number)
            if buffer.Offset() > 1:
                place = buffer._tab.Pos + buffer._tab.Offset(6) + moved
                struct.pack_into("<Q", made, place, buffer.Offset() + moved)
