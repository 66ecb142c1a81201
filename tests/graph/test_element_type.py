"""Element types: what the table says, and packed values, which numpy does not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.element_type import ELEMENT_TYPES, element_type
from utvm_deploy.graph.model import Tensor

INT4 = element_type("int4")
OF_NUMPY = [one for one in ELEMENT_TYPES.values() if one.name == one.numpy]


def bytes_of(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


@pytest.mark.parametrize("one", OF_NUMPY, ids=lambda one: one.name)
def test_the_table_says_what_numpy_says(one) -> None:
    dtype = np.dtype(one.name)
    assert (one.unit_bytes, one.in_unit, one.bits) == (dtype.itemsize, 1, 8 * dtype.itemsize)
    assert one.is_float == (dtype.kind in "fc")
    assert one.is_signed == (dtype.kind in "ifc")
    assert one.size_bytes(7) == 7 * dtype.itemsize
    if dtype.kind in "iu":
        assert one.limits == (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = np.arange(6).astype(dtype)
    data = np.frombuffer(one.packed(values), np.uint8)
    np.testing.assert_array_equal(one.unpacked(data, (2, 3)), values.reshape(2, 3))


def test_limits_of_others_than_integers() -> None:
    assert element_type("bool").limits == (0, 1)
    assert INT4.limits == (-8, 7)
    with pytest.raises(ValueError, match="float32 is not a type of integers"):
        _ = element_type("float32").limits


def test_the_low_nibble_is_first() -> None:
    assert INT4.packed(np.array([1, -2, 7], np.int8)) == b"\xe1\x07"
    np.testing.assert_array_equal(INT4.unpacked(bytes_of(0xE1, 0x07), (3,)), [1, -2, 7])
    # What is left over of the last byte has no meaning.
    np.testing.assert_array_equal(INT4.unpacked(bytes_of(0xE1, 0xF7), (3, 1)), [[1], [-2], [7]])


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 1), (2, 1), (3, 2), (27, 14)])
def test_an_odd_count_rounds_up(count: int, size: int) -> None:
    assert INT4.size_bytes(count) == Tensor("t", (count,), "int4").size_bytes == size
    assert len(INT4.packed(np.zeros(count, np.int8))) == size


@given(st.lists(st.integers(-8, 7), max_size=40))
def test_packed_values_come_back(values: list[int]) -> None:
    data = INT4.packed(np.array(values, np.int8))
    for index, value in enumerate(values):
        assert (data[index // 2] >> (4 * (index % 2))) & 15 == value % 16
    back = INT4.unpacked(np.frombuffer(data, np.uint8), (len(values),))
    assert back.dtype == np.int8 and back.tolist() == values


@given(st.binary(max_size=40))
def test_bytes_come_back(data: bytes) -> None:
    values = INT4.unpacked(np.frombuffer(data, np.uint8), (2 * len(data),))
    assert INT4.packed(values) == data


@pytest.mark.parametrize("value", [-9, 8])
def test_a_value_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="values of int4 are from -8 to 7"):
        INT4.packed(np.array([0, value], np.int8))


def test_an_unknown_type_has_no_size() -> None:
    with pytest.raises(ModelError, match="elements of type string have no known size"):
        _ = Tensor("t", (1,), "string").size_bytes
