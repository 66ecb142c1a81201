"""Plain PrimFuncs, of ours and of a user's, scheduled with the tensor intrinsics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import s_tir, te

import utvm_deploy
from utvm_deploy import intrinsics
from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.model import Array
from utvm_deploy.intrinsics import DSP, HWOI, Dot, Taps

CASES = {
    "conv 3x3": ("conv2d", intrinsics.conv2d(8, 8, 8, 6, padding=(1, 1))),
    "conv 3x3 HWOI": ("conv2d", intrinsics.conv2d(8, 9, 8, 4, layout=HWOI)),
    "conv 3x3 strided HWOI": ("conv2d", intrinsics.conv2d(9, 9, 4, 4, strides=(2, 2), layout=HWOI)),
    "conv 5x5 of 3 channels": ("conv2d", intrinsics.conv2d(7, 7, 3, 4, (5, 5), padding=(2, 2))),
    "conv 1x1": ("conv2d", intrinsics.conv2d(5, 5, 8, 4, (1, 1))),
    "conv 1x3": ("conv2d", intrinsics.conv2d(5, 9, 4, 4, (1, 3), strides=(1, 2))),
    "depthwise": ("depthwise_conv2d", intrinsics.depthwise_conv2d(6, 6, 8, padding=(1, 1))),
    "depthwise strided": ("depthwise_conv2d", intrinsics.depthwise_conv2d(9, 9, 8, strides=(2, 2))),
    "depthwise 1x3": ("depthwise_conv2d", intrinsics.depthwise_conv2d(4, 8, 4, (1, 3))),
    "dense": ("dense", intrinsics.dense(1, 100, 10)),
    "dense deep": ("dense", intrinsics.dense(4, 1024, 10)),
    "batch matmul": ("batch_matmul", intrinsics.batch_matmul(2, 6, 21, 4)),
}


def inputs_of(func: Any) -> tuple[list[Array], tuple[int, ...]]:
    """Random inputs, and the output's shape."""
    rng = np.random.default_rng(5)
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in func.params]
    return [rng.integers(-128, 128, shape, dtype=np.int8) for shape in shapes[:-1]], shapes[-1]


def expected(name: str, inputs: list[Array], func: Any) -> Array:
    """The operator in NumPy."""
    a, b = (one.astype(np.int32) for one in inputs)
    if name.startswith(("dense", "batch")):
        return np.asarray(a @ b.swapaxes(-1, -2))
    if "HWOI" in name:
        b = np.moveaxis(b, 2, 0)
    is_depthwise = name.startswith("depthwise")
    kernel = b.shape[:2] if is_depthwise else b.shape[1:3]
    _, rows, columns, _ = (int(extent) for extent in func.params[-1].shape)
    pad = 1 if "pad" in func.script() and kernel == (3, 3) else 2 if "pad" in func.script() else 0
    a = np.pad(a, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    step = [(a.shape[1] - kernel[0]) // max(rows - 1, 1), (a.shape[2] - kernel[1]) // (columns - 1)]
    found = np.zeros([int(extent) for extent in func.params[-1].shape], dtype=np.int32)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            part = a[:, y : y + rows * step[0] : step[0], x : x + columns * step[1] : step[1]]
            part = part[:, :rows, :columns]
            found += part * b[y, x] if is_depthwise else part @ b[:, y, x].T
    return found


@pytest.mark.tools
@pytest.mark.parametrize(
    "name_of_board",
    ["host", *(pytest.param(b, marks=pytest.mark.emulator) for b in ("mps2_an386", "mps3_an547"))],
)
def test_scheduled_operators_compute_the_same(name_of_board: str) -> None:
    with utvm_deploy.connect(name_of_board) as device:
        family = intrinsics.family_of(device.board.cpu.kernel_core)
        functions = {}
        for number, (block, func) in enumerate(CASES.values()):
            sch = s_tir.Schedule(func)
            used = intrinsics.tensorize(sch, sch.get_sblock(block), family)
            assert used.function in sch.mod["main"].script(show_meta=True)
            functions[f"case_{number}"] = sch.mod["main"]
        with device.load_kernels(functions) as module:
            for (name, (_, func)), function in zip(CASES.items(), functions, strict=True):
                inputs, shape = inputs_of(func)
                passed = [device.tensor(one) for one in inputs]
                output = device.empty(shape, np.int32)
                module[function](*passed, output)
                wanted = expected(name, inputs, func)
                np.testing.assert_array_equal(output.numpy(), wanted, err_msg=name)
                for one in (*passed, output):
                    one.free()


@pytest.mark.emulator
def test_a_padded_convolution_takes_at_most_nine_tenths_of_a_cycle_a_mac() -> None:
    func = intrinsics.conv2d(16, 16, 32, 32, padding=(1, 1))
    sch = s_tir.Schedule(func)
    intrinsics.tensorize(sch, sch.get_sblock("conv2d"), DSP)
    with (
        utvm_deploy.connect("mps2_an500", link="debug") as device,
        device.load_kernels({"padded": sch.mod["main"]}) as module,
    ):
        inputs, shape = inputs_of(func)
        output = device.empty(shape, np.int32)
        call = module["padded"](*(device.tensor(one) for one in inputs), output)
        weights = inputs[1].reshape(32, 3, 3, 32)
        wanted = expected("conv 3x3", [inputs[0], weights], func)
        np.testing.assert_array_equal(output.numpy(), wanted)
    assert call.ticks.min <= 0.9 * 16 * 16 * 32 * 9 * 32


def test_the_tile_follows_the_pixels() -> None:
    for pixels, rows in ((2, 2), (4, 4), (16, 8)):
        sch = s_tir.Schedule(CASES["conv 3x3"][1])
        used = intrinsics.tensorize(sch, sch.get_sblock("conv2d"), DSP, pixels=pixels)
        assert used == Dot(DSP, rows, 6, 72)
        assert f"pad_reindex[0:{rows}" not in sch.mod.script()
    sch = s_tir.Schedule(CASES["depthwise"][1])
    used = intrinsics.tensorize(sch, sch.get_sblock("depthwise_conv2d"), DSP)
    assert used == Taps(DSP, 3, 3, 8)


def transposed(kind: str) -> Any:
    """Products that the intrinsics do not fit."""
    dtype = "uint8" if kind == "type" else "int8"
    a, b = te.placeholder((8, 16), dtype, "a"), te.placeholder((16, 8), dtype, "b")
    k = te.reduce_axis((0, 16), "k")
    sign = -1 if kind == "sign" else 1

    def product(m: Any, n: Any) -> Any:
        return te.sum(a[m, k].astype("int32") * b[k, n].astype("int32") * sign, axis=k)

    return te.create_prim_func([a, b, te.compute((8, 8), product, name="product")])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("layout", "block product: the last axis of its second buffer is not summed over; order"),
        ("type", "block product: it is not a sum of products of two int8 buffers in int32"),
        ("sign", "block product: it is not a sum of products of two int8 buffers in int32"),
    ],
)
def test_what_the_intrinsics_do_not_fit(kind: str, message: str) -> None:
    sch = s_tir.Schedule(transposed(kind))
    with pytest.raises(CompileError, match=message):
        intrinsics.tensorize(sch, sch.get_sblock("product"), DSP)


def test_a_refusal_of_tvm_is_told() -> None:
    dilated = te.placeholder((1, 9, 9, 8), "int8", "image")
    weights = te.placeholder((3, 3, 8), "int8", "weights")
    ky, kx = te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")

    def product(n: Any, y: Any, x: Any, c: Any) -> Any:
        pixel = dilated[n, y + 2 * ky, x + 2 * kx, c]
        return te.sum(pixel.astype("int32") * weights[ky, kx, c].astype("int32"), axis=[ky, kx])

    output = te.compute((1, 5, 5, 8), product, name="spread")
    sch = s_tir.Schedule(te.create_prim_func([dilated, weights, output]))
    with pytest.raises(CompileError, match="family dsp do not fit block spread: TVM says: "):
        intrinsics.tensorize(sch, sch.get_sblock("spread"), DSP)


def test_no_other_layout() -> None:
    with pytest.raises(CompileError, match="weights in the layout 'HWIO'; take OHWI or HWOI"):
        intrinsics.conv2d(8, 8, 8, 8, layout="HWIO")
