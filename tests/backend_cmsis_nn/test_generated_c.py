"""The C that calls the library, without the library."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from covered_models import covered_bytes, covered_halfwords
from fake_library import FAKE, NOWHERE
from tflite_writer import ModelWriter

from utvm_deploy.backends.cmsis_nn import MURISCV_NN, CmsisNn, scratch
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import write_bundle
from utvm_deploy.bundling.manifest import read_manifest
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.project import create_project

BOARD = load_board("mps2_an500")
Covered = Callable[[str], tuple[CompiledModel, ...]]


def compiled(model: Path, library: CmsisNn = NOWHERE) -> CompiledModel:
    return compile_model(
        model, BOARD, CompileOptions(name="small", kernels="cmsis-nn", cmsis_nn=library)
    )


def functions(model: CompiledModel) -> list[str]:
    return [layer.why if layer.is_external else "ours" for layer in model.layers]


def test_the_library_does_what_it_covers_and_we_do_the_rest(small_model: Path) -> None:
    made = compiled(small_model)
    assert functions(made) == [
        "arm_convolve_wrapper_s8",
        "arm_convolve_wrapper_s8",
        "ours",
        "arm_fully_connected_s8",
    ]
    assert made.external is not None
    assert made.external.functions == ("arm_convolve_wrapper_s8", "arm_fully_connected_s8")
    generic = compile_model(small_model, BOARD, CompileOptions(name="small"))
    assert generic.external is None and functions(generic) == ["ours"] * 4
    assert [layer.outputs[0].name for layer in made.layers] == [
        layer.outputs[0].name for layer in generic.layers
    ]


def test_a_plugin_goes_before_the_library(small_model: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from utvm_deploy.backends import *\n"
        "def build(match):\n    return call(match, 'f', 'return 0;')\n"
        "kinds = ('RELU', 'FULLY_CONNECTED')\n"
        "patterns = tuple(Pattern((kind,), build) for kind in kinds)\n"
        "backend = Backend('Mine', patterns, CText(''))\n"
    )
    options = CompileOptions(
        name="small", kernels="cmsis-nn", cmsis_nn=NOWHERE, backends=(load_plugin(plugin),)
    )
    made = compile_model(small_model, BOARD, options)
    assert [layer.engine for layer in made.layers] == ["CMSIS-NN", "CMSIS-NN", "Mine", "Mine"]
    assert [one.name for one in made.externals] == ["Mine", "CMSIS-NN"]
    assert [one.functions for one in made.externals] == [("f",), ("arm_convolve_wrapper_s8",)]


def test_what_an_older_revision_lacks_we_do(small_model: Path) -> None:
    older = replace(NOWHERE, functions=frozenset({"arm_convolve_wrapper_s8"}))
    made = compiled(small_model, older)
    assert functions(made) == ["arm_convolve_wrapper_s8", "arm_convolve_wrapper_s8", "ours", "ours"]
    assert "revision of CMSIS-NN has no arm_fully_connected_s8" in str(made.layers[-1])


def test_every_covered_operator_names_its_function(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 8, 8, 4), scale=0.05)
    ones = np.ones((1, 3, 3, 4), np.int8)
    bias = np.zeros(4, np.int32)
    a = m.depthwise_conv2d(x, ones, bias, scale=0.05)
    b = m.add(a, x, scale=0.1)
    c = m.max_pool(b, 2)
    d = m.average_pool(c, 2)
    # A border of its own, which no convolution could take.
    e = m.average_pool(m.pad(d, [[0, 0], [1, 1], [1, 1], [0, 0]]), 2)
    f = m.reshape(e, (1, -1))
    channels = m.tensors[f].shape[1]
    per_channel = [0.01, 0.02, 0.03]
    g = m.fully_connected(f, np.ones((3, channels), np.int8), bias[:3], weight_scale=per_channel)
    m.output(m.softmax(g), m.add(g, m.constant(np.ones((1, 1), np.int8), 0.1), scale=0.2))
    made = compiled(m.save(tmp_path / "m.tflite"))
    assert functions(made) == [
        "arm_depthwise_conv_wrapper_s8",
        "arm_elementwise_add_s8",
        "arm_max_pool_s8",
        "arm_avgpool_s8",
        "arm_pad_s8",
        "arm_avgpool_s8",
        "arm_fully_connected_per_channel_s8",
        "arm_softmax_s8",
        "ours",  # it repeats one side, which the library cannot
    ]


def test_softmax_of_bytes_to_halfwords_is_ours(tmp_path: Path) -> None:
    m = ModelWriter()
    made = m.tensor((1, 8), "int16", 1 / 65536, -32768)
    m.operator("SOFTMAX", [m.input((1, 8))], [made], ("SoftmaxOptions", {"Beta": 1.0}))
    m.output(made)
    assert functions(compiled(m.save(tmp_path / "m.tflite"))) == ["ours"]


def test_the_arena_holds_the_planned_scratch_and_a_status_for_every_layer(
    small_model: Path,
) -> None:
    made = compiled(small_model)
    # Two columns of 3x3x3 and of 2x3x5 taps, rounded up to 4, in int16.
    assert [layer.scratch_bytes for layer in made.layers] == [4 * 28, 4 * 32, 0, 0]
    assert made.status_offset is not None
    assert made.arena_bytes == made.status_offset + len(made.layers)
    text = made.sources["small.c"]
    assert f"arena[{made.status_offset} + 1] = (uint8_t)small_cmsis_nn_conv2d" in text
    assert "_scratch() > 112)" in text and "_scratch() > 128)" in text
    assert "void small_check_library(int32_t *layer);" in made.sources["small.h"]
    generic = compile_model(small_model, BOARD, CompileOptions(name="small"))
    assert generic.status_offset is None and "check_library" not in generic.sources["small.h"]


MVE = CmsisNn((), "", "", "", has_mve=True)
ARMCLANG = CmsisNn((), "", "", "", is_armclang=True)
MURISCV = CmsisNn((), "", "", "", product=MURISCV_NN)
VECTORS = replace(MURISCV, has_vectors=True)


def test_scratch_of_a_convolution() -> None:
    window = Window.of((1, 8, 8, 3), (1, 8, 8, 4), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    # Two columns of int16 rounded up to 4, or four of int8 rounded up to 16.
    assert [scratch.convolution(library, window, 3) for library in (NOWHERE, MVE)] == [112, 128]
    pointwise = Window.of((1, 8, 8, 9), (1, 8, 8, 4), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    sizes = [scratch.convolution(library, pointwise, 9) for library in (NOWHERE, MVE, ARMCLANG)]
    assert sizes == [0, 0, 36]
    # One library has no kernel for strides, nor for 9 channels.
    for channels, stride, theirs in ((8, 1, 0), (9, 1, 48), (8, 2, 32)):
        output = (1, 8 // stride, 8 // stride, 4)
        window = Window.of(
            (1, 8, 8, channels), output, (1, 1), (stride, stride), (1, 1), (0, 0, 0, 0)
        )
        sizes = [scratch.convolution(one, window, channels) for one in (NOWHERE, MURISCV)]
        assert sizes == [0, theirs]
    # Four columns, rounded up to 8 bytes.
    assert scratch.convolution(VECTORS, window, 8) == 32


def test_scratch_of_depthwise_and_pools() -> None:
    small = Window.of((1, 8, 8, 6), (1, 8, 8, 6), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    large = Window.of((1, 8, 8, 6), (1, 8, 8, 6), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2))
    assert scratch.depthwise(NOWHERE, small, 6, 6) == 0
    assert scratch.depthwise(NOWHERE, large, 6, 6) == 25 * 6 * 2
    assert scratch.depthwise(NOWHERE, large, 6, 12) == 0
    assert scratch.depthwise(MVE, small, 6, 6) == 4 * 124 * 9
    assert scratch.depthwise(VECTORS, large, 6, 6) == 4 * 124 * 25
    assert [scratch.dense(one, 7) for one in (MVE, MURISCV, VECTORS)] == [0, 0, 28]
    assert (scratch.average_pool(NOWHERE, 6), scratch.average_pool(MVE, 6)) == (24, 0)


def test_scratch_of_transposed_convolutions_and_of_int16() -> None:
    few = scratch.transpose_convolution(NOWHERE, (1, 5, 4, 6), 3, (3, 2), (2, 2))
    many = scratch.transpose_convolution(NOWHERE, (1, 5, 4, 20), 3, (3, 2), (2, 2))
    # Rows of sums for as many rows as the window has; or two columns, and all weights.
    assert few == (3 * (3 * 2 + 2) * 3 * 4, 0) and many == (2 * 120 * 2, 6 * 20 * 3)
    window = Window.of((1, 8, 8, 3), (1, 8, 8, 4), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    sizes = [scratch.convolution(library, window, 3, is_int16=True) for library in (NOWHERE, MVE)]
    assert sizes == [2 * 27 * 2, 4 * 64]
    sizes = [scratch.depthwise(one, window, 3, 3, is_int16=True) for one in (NOWHERE, MVE)]
    assert sizes == [27 * 2, 4 * 27 * 2 + 8]
    assert scratch.depthwise(NOWHERE, window, 3, 6, is_int16=True) == 0


@pytest.fixture(scope="module")
def covered(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Covered:
    """The C of a model for two libraries, compiled once for all compilers."""
    folder = tmp_path_factory.mktemp("covered")
    made = {"bytes": covered_bytes, "halfwords": covered_halfwords}

    @cache
    def compiled_for_both(model: str) -> tuple[CompiledModel, ...]:
        path = made[model]().save(folder / f"{model}.tflite") if model in made else small_model
        return tuple(compiled(path, library) for library in (NOWHERE, MVE))

    return compiled_for_both


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
@pytest.mark.parametrize("model", ["small", "bytes", "halfwords"])
def test_it_compiles_without_a_warning(
    covered: Covered, tmp_path: Path, model: str, compiler: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for found in covered(model):
        assert model == "small" or "ours" not in functions(found)
        for name, text in found.sources.items():
            (tmp_path / name).write_text(text)
        flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wmissing-prototypes"]
        for source in ("small.c", "small_kernels.c"):
            subprocess.run(
                [compiler, *flags, f"-isystem{FAKE}", "-c", source, "-o", "x.o"],
                cwd=tmp_path,
                check=True,
                timeout=60,
            )


def test_helium_takes_the_folded_bias_as_kernel_sums(small_model: Path) -> None:
    text = compiled(small_model, MVE).sources["small_kernels.c"]
    assert "(int32_t *)kernel_sums, 24}" in text
    assert "arm_fully_connected_s8_get_buffer_size(&filter_dims) - 24" in text


def test_kernels_must_be_known_and_have_their_library(small_model: Path) -> None:
    with pytest.raises(
        CompileError, match="no kernels 'xnnpack'; choose one of best, generic, cmsis-nn"
    ):
        compile_model(small_model, BOARD, CompileOptions(kernels="xnnpack"))
    with pytest.raises(CompileError, match=r"needs the library itself.*--cmsis-nn DIR"):
        compile_model(small_model, BOARD, CompileOptions(kernels="cmsis-nn"))


def test_archive_project_and_bundle_name_the_library(small_model: Path, tmp_path: Path) -> None:
    made = compiled(small_model)
    archive = tmp_path / "small.tar"
    write_library(made, archive)
    assert read_library(archive).external == made.external

    tree = create_project(made, BOARD, tmp_path / "tree")
    text = (tree / "CMakeLists.txt").read_text()
    assert "set(CMSIS_NN_LIBRARY /nowhere/libcmsis-nn.a CACHE" in text
    assert "small_check_library" in text
    # Its content is part of what an image is cached by.
    assert made.external is not None and made.external.digest in text

    zeros = [np.zeros(b.shape, b.dtype) for b in made.inputs]
    expected = [np.zeros(b.shape, b.dtype) for b in made.outputs]
    folder = tmp_path / "bundle"
    write_bundle(made, BOARD, small_model, folder, inputs=[zeros], expected=[expected])
    manifest = read_manifest((folder / "manifest.json").read_bytes())
    (dependency,) = manifest["external_dependencies"]
    assert dependency["name"] == "CMSIS-NN"
    assert dependency["functions"] == ["arm_convolve_wrapper_s8", "arm_fully_connected_s8"]
    assert "/nowhere" not in (folder / "manifest.json").read_text()
    cmake = (folder / "CMakeLists.txt").read_text()
    assert "needs CMSIS-NN: give -DCMSIS_NN_LIBRARY=" in cmake
