"""The tables of constants: equal ones once, each at its alignment, each value as it is."""

from __future__ import annotations

import numpy as np
import pytest

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.constants import ConstantTables


def test_equal_tables_are_one_and_those_of_other_types_are_not() -> None:
    tables = ConstantTables()
    assert tables.add("w", np.array([1, 2, 3], np.int8)) == "w"
    assert tables.add("v", np.array([[1, 2, 3]], np.int8)) == "w"
    # The bytes of 1.0 are those of this number.
    assert tables.add("w", np.array([0x3F800000], np.int32)) == "w_2"
    assert tables.add("w", np.array([1.0], np.float32)) == "w_3"
    assert tables.add("w", np.array([1, 2, 3], np.uint8)) == "w_4"
    text = tables.declaration("net")
    for line in ("int8_t w[3]", "int32_t w_2[1]", "float w_3[1]", "uint8_t w_4[3]"):
        assert line in text


def test_tables_begin_aligned_and_never_share_bytes() -> None:
    tables = ConstantTables()
    for count, kind in ((3, "int8"), (1, "int32"), (5, "int8"), (1, "int64"), (1, "int8")):
        tables.add("t", np.arange(100, 100 + count).astype(kind))
    spans = [tables.span(f"t_{number}" if number > 1 else "t") for number in range(1, 6)]
    assert [(one.offset, one.size_bytes) for one in spans] == [
        *[(0, 3), (4, 4), (8, 5), (16, 8), (24, 1)]
    ]
    assert tables.total_bytes == 32


def test_values_have_a_literal() -> None:
    tables = ConstantTables()
    tables.add("f", np.array([1.5, np.inf, -np.inf, np.nan, -0.0], np.float32))
    tables.add("i", np.array([-(2**31), 2**31 - 1], np.int32))
    text = tables.definition("net").replace("\n", "")
    assert '1.5f,__builtin_inff(),-__builtin_inff(),__builtin_nanf(""),-0.0f' in text
    assert "(-2147483647 - 1),2147483647" in text


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 1 << 16])
def test_small_integers_are_written_in_lines_of_32(dtype: str, count: int) -> None:
    tables = ConstantTables()
    values = np.arange(count).astype(dtype) * 3 + np.iinfo(dtype).min
    tables.add("t", values.astype(dtype))
    texts = list(map(str, values.astype(dtype).tolist()))
    lines = [",".join(texts[start : start + 32]) for start in range(0, count, 32)]
    assert "{\n" + ",\n".join(lines) + "\n    }" in tables.definition("net")


def test_values_of_another_byte_order_are_the_same() -> None:
    tables = ConstantTables()
    values = np.array([1, -2, 300], np.int16)
    assert tables.add("t", values) == tables.add("u", values.astype(values.dtype.newbyteorder()))
    other = ConstantTables()
    other.add("t", values.astype(values.dtype.newbyteorder()))
    assert "1,-2,300" in other.definition("net")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(CompileError, match="constant w is empty"):
        ConstantTables().add("w", np.zeros(0, np.int8))


@pytest.mark.parametrize("alignment", [8, 16])
def test_a_table_may_be_aligned_to_more(alignment: int) -> None:
    tables = ConstantTables()
    tables.add("w", np.arange(3, dtype=np.uint8))
    tables.add("n", np.arange(8, dtype=np.uint8), alignment=alignment)
    tables.add("k", np.arange(1, dtype=np.int64))
    assert tables.span("n").offset == alignment and tables.total_bytes == 16 + alignment
    assert tables.large_alignments == (alignment,)
    text = tables.declaration("net")
    assert f"uint8_t n[8] NET_ALIGNED_{alignment};" in text
    assert "uint8_t w[3] NET_ALIGNED;" in text and "int64_t k[1] NET_ALIGNED;" in text
