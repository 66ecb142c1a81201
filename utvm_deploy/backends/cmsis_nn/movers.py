"""What moves bytes, as calls of the library: PAD, TRANSPOSE and CONCATENATION."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.backends import Joined, KernelCall, Operation, ScalarArgument, quantization_of
from utvm_deploy.backends.cmsis_nn.call import dims, four_extents, library_call
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Pad, Rearrange

# What one call of the library's concatenation counts rows and their bytes in.
_LARGEST_ROW = 0xFFFF


def lower_pad(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """PAD of int8."""
    attributes = op.attributes(Pad)
    source = op.source
    extents = four_extents(source.shape)
    if extents is None or len(source.shape) > len(extents) or source.dtype != "int8":
        return "no call of CMSIS-NN pads more than four dimensions, or other types than int8"
    paddings = ((0, 0),) * (len(extents) - len(source.shape)) + attributes.paddings
    before, after = zip(*paddings, strict=True)
    return library_call(
        op,
        ours,
        "arm_pad_s8",
        (ScalarArgument("value", quantization_of(source).zero_point),),
        dims("input_dims", extents)
        + dims("before", before)
        + dims("after", after)
        + "    return (int32_t)arm_pad_s8(\n"
        "        input, output, (int8_t)value, &input_dims, &before, &after);\n",
    )


def lower_transpose(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """TRANSPOSE of int8, in as few dimensions as its order leaves."""
    a = op.attributes(Rearrange)
    is_whole = all(
        tuple(indices) == tuple(range(extent))
        for indices, extent in zip(a.indices, a.view, strict=True)
    )
    if not is_whole or op.source.dtype != "int8":
        return "no call of CMSIS-NN transposes other types than int8, or a part"
    extents, order = _fewest(a.view, a.order)
    if len(extents) > 4:
        return "no call of CMSIS-NN transposes more than four dimensions"
    if len(extents) == 3:
        # The Helium kernel wants four, of which the first two stay.
        extents, order = (1, *extents), (0, *(axis + 1 for axis in order))
    made = [extents[axis] for axis in order]
    rest = (1,) * (4 - len(extents))
    return library_call(
        op,
        ours,
        "arm_transpose_s8",
        (),
        dims("input_dims", (*extents, *rest))
        + dims("output_dims", (*made, *rest))
        + f"    const uint32_t order[] = {{{', '.join(map(str, order))}}};\n"
        f"    const cmsis_nn_transpose_params parameters = {{{len(extents)}, order}};\n"
        "    return (int32_t)arm_transpose_s8(\n"
        "        input, output, &input_dims, &output_dims, &parameters);\n",
    )


def _fewest(view: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same transposition without dimensions of one, or that stay one after the other."""
    runs: list[list[int]] = []
    for axis in (axis for axis in order if view[axis] > 1):
        between = view[runs[-1][-1] + 1 : axis] if runs and axis > runs[-1][-1] else None
        if between is not None and all(extent == 1 for extent in between):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    places = sorted(range(len(runs)), key=lambda number: runs[number][0])
    extents = [1] * len(runs)
    for place, number in enumerate(places):
        for axis in runs[number]:
            extents[place] *= view[axis]
    return tuple(extents), tuple(places.index(number) for number in range(len(runs)))


def lower_concatenation(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """CONCATENATION of int8: a call for each input, whose rows are put among the output's."""
    kernel = ours.kernel
    assert isinstance(kernel, Joined)
    total = sum(kernel.sizes)
    if kernel.dtype != "int8" or max(total, kernel.rows) > _LARGEST_ROW:
        return "no call of CMSIS-NN joins other types than int8, or rows this large"
    calls, start = "", 0
    for number, size in enumerate(kernel.sizes):
        calls += (
            "    arm_concatenation_s8_z(\n"
            f"        input_{number}, 1, 1, {size}, {kernel.rows}, output, {total}, {start});\n"
        )
        start += size
    inputs = [(f"input_{number}", number) for number in range(len(kernel.sizes))]
    function = "arm_concatenation_s8_z"
    return library_call(op, ours, function, (), f"{calls}    return 0;\n", inputs=inputs)
