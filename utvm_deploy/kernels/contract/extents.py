"""Extents of dimensions: how neighbours are merged, and how kernels' names show them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TypeVar

Role = TypeVar("Role", bound=Hashable)


def merge(extents: Sequence[int], roles: Sequence[Role]) -> tuple[list[int], list[Role]]:
    """Drop dimensions of extent 1, then join neighbours with the same role.

    Row-major layout makes the joined dimension contiguous. At least one dimension remains.
    """
    merged: list[int] = []
    kept: list[Role] = []
    for extent, role in zip(extents, roles, strict=True):
        if extent == 1:
            continue
        if kept and kept[-1] == role:
            merged[-1] *= extent
        else:
            merged.append(extent)
            kept.append(role)
    if not merged:
        return [1], [roles[0]]
    return merged, kept


def label(extents: Sequence[int]) -> str:
    """Extents as part of a kernel's name."""
    return "x".join(map(str, extents))


def flags_label(flags: Sequence[bool]) -> str:
    """Flags as part of a kernel's name, such as ``101``."""
    return "".join("01"[flag] for flag in flags)


def type_label(dtype: str) -> str:
    """A type as the end of a kernel's name; int8 is not written."""
    return "" if dtype == "int8" else f"_{dtype}"


def around_axis(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """The elements outside of an axis, its extent, and the elements inside of one step along it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
