"""``--ethos-u``: regions go to Vela, images call the driver, and what cannot be done is said."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from double_driver import double_of
from make_golden import DEDICATED, MODEL, exact, golden
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.backends.ethos_u import dense, regions
from utvm_deploy.backends.ethos_u.check import NpuProgram, checked
from utvm_deploy.backends.ethos_u.configurations import (
    MEMORY_MODES,
    NAMES,
    Configuration,
    configuration,
)
from utvm_deploy.backends.ethos_u.vela import Estimate, VelaRefuses, program_in
from utvm_deploy.backends.interface import Match
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Region, load_board
from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.project import find_ethos_u

CONFIG = "ethos-u55-128"


def stored(config: str = CONFIG) -> NpuProgram:
    return program_in(golden(config), configuration(config))


@pytest.fixture
def vela(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vela that knows the digits, and refuses parts of them."""

    def compiled(model: bytes, name: str, chosen: Configuration) -> tuple[NpuProgram, Estimate]:
        if "more" not in name:
            raise CompileError(f"Vela refuses {name}: no")
        found = stored(f"{chosen.name},{chosen.memory_mode}".removesuffix(",shared-sram"))
        made = replace(found, configuration=chosen)
        return made, Estimate(9_000, 500_000_000, chosen.system)

    monkeypatch.setattr(regions, "compiled_by_vela", compiled)
    monkeypatch.setattr(regions, "refused_by_vela", lambda *_: frozenset())


def samples() -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8) for _ in range(3)]


def sample_file(path: Path, inputs: list[Array]) -> Path:
    outputs = [one[0] for one in run_reference(MODEL, inputs, outputs_only=True).outputs]
    np.savez(path, inputs=np.stack(inputs), outputs=np.stack(outputs))
    return path


def verify(*more: str, config: str = CONFIG) -> int:
    return main(["verify", str(MODEL), "--board", "host", "--ethos-u", config, *more])


@pytest.mark.parametrize("config", [CONFIG, DEDICATED])
@pytest.mark.usefixtures("vela")
def test_a_model_runs_with_the_driver_s_double(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = samples()
    driver = double_of(tmp_path / "driver", exact(MODEL, stored(config)), inputs)
    file = sample_file(tmp_path / "golden.npz", inputs)
    arguments = ["--golden", str(file), "--ethos-u-driver", str(driver)]
    assert verify(*arguments, config=config) == 0, capsys.readouterr()
    assert "all equal" in capsys.readouterr().out
    # Bytes that the driver refuses end the run with the layer and its status.
    other = sample_file(tmp_path / "other.npz", [one ^ 1 for one in inputs])
    assert verify("--golden", str(other), "--ethos-u-driver", str(driver), config=config) == 1
    printed = capsys.readouterr()
    label = configuration(config).label
    assert f"{label} refused layer 0" in printed.out + printed.err


@pytest.mark.usefixtures("vela")
def test_a_cache_is_in_the_memory_of_the_board_that_is_named() -> None:
    board = load_board("mps2_an500")
    more = Region("sram2", 0x3000_0000, 0x2_0000, "ram", executable=False)
    board = replace(board, memory=(*board.memory, more))
    found = {
        where: utvm_deploy.compile(MODEL, board, plugin=find_ethos_u(f"{DEDICATED}{where}", board))
        for where in ("", ",sram2")
    }
    program, text = stored(DEDICATED), "".join(found[",sram2"].sources.values())
    assert "(uintptr_t)memory, 0x30000000u};" in text
    assert f"{program.scratch_bytes}, {program.cache_bytes}}};" in text
    (here,), (there,) = (one.layers for one in found.values())
    assert here.scratch_bytes - there.scratch_bytes == program.cache_bytes
    assert f"its cache of {program.cache_bytes:,} bytes is in sram2" in there.why
    small = replace(board, memory=(*board.memory[:-1], replace(more, size=64)))
    compiled = utvm_deploy.compile(MODEL, small, plugin=find_ethos_u(f"{DEDICATED},sram2", small))
    assert not any(one.engine.startswith("Ethos") for one in compiled.layers)


@pytest.mark.usefixtures("vela")
def test_a_compiled_model_has_the_stream_and_the_rest_is_ours(tmp_path: Path) -> None:
    board = load_board("mps2_an500")
    backend = find_ethos_u(CONFIG, board)
    compiled = utvm_deploy.compile(MODEL, board, plugin=backend)
    (first,) = compiled.layers
    assert first.engine == "Ethos-U55-128"
    program = exact(MODEL, stored())
    # Aligned to 16, between guards.
    assert first.scratch_bytes == program.scratch_bytes + 16 + 2 * 16
    assert "Vela's estimate: 9,000 cycles of the NPU (at 500 MHz" in first.why
    # An NPU reaches no tightly coupled RAM.
    assert not compiled.pools and compiled.arena_bytes > program.scratch_bytes
    text = "".join(compiled.sources.values())
    assert text.count("DIGITS_INT8_ALIGNED_16;") == 2
    # The driver may have no NPU to give.
    assert text.index("if (!driver) { return -2; }") < text.index("int status = ethosu_invoke_v3(")
    assert f"ethosu_invoke_v3(driver, commands, {len(program.payload)}, bases, sizes, 2" in text
    archive = tmp_path / "digits.tar"
    assert main(["compile", str(MODEL), "--board", "mps2_an500", "--ethos-u", CONFIG,
                 "-o", str(archive)]) == 0  # fmt: skip
    assert [one.engine for one in read_library(archive).layers] == [
        one.engine for one in compiled.layers
    ]


def test_vela_is_asked_for_each_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two regions with the same outputs and other inputs are two programs."""

    def refused(model: bytes, name: str, chosen: Configuration) -> tuple[NpuProgram, Estimate]:
        raise CompileError(f"asked for {name}")

    monkeypatch.setattr(regions, "compiled_by_vela", refused)
    graph = load_model(MODEL, is_quiet=True)
    asked = regions.Regions(MODEL, configuration(CONFIG), "")
    assert asked.build(Match(graph, graph.operators[:2], "host")) == (
        "asked for DEPTHWISE_CONV_2D+CONV_2D"
    )
    assert asked.build(Match(graph, graph.operators[1:2], "host")) == "asked for CONV_2D"


@pytest.mark.usefixtures("vela")
def test_regions_of_a_model_that_vela_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> frozenset[str]:
        raise VelaRefuses("Vela refuses it: an operator could not run on NPU")

    monkeypatch.setattr(regions, "refused_by_vela", refused)
    board = load_board("host")
    compiled = utvm_deploy.compile(MODEL, board, plugin=find_ethos_u(CONFIG, board))
    assert [one.engine for one in compiled.layers] == ["Ethos-U55-128"]


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.usefixtures("vela")
def test_sums_that_the_reference_shifts_left_stay_here(kind: str, tmp_path: Path) -> None:
    """LiteRT's sums of 32 bits overflow there, and those of an NPU do not."""
    for scale, is_covered in ((0.5, True), (0.001, False)):
        m, weights = ModelWriter(), np.ones((4, 1, 1, 4), np.int8)
        x = m.input((1, 3, 3, 4), 0.5, -7)
        if kind == "CONV_2D":
            y = m.conv2d(x, weights, scale=scale)
        else:
            y = m.depthwise_conv2d(x, np.ones((1, 1, 1, 4), np.int8), scale=scale)
        m.output(y)
        path = m.save(tmp_path / "m.tflite")
        graph = load_model(path, is_quiet=True)
        asked = regions.Regions(path, configuration(CONFIG), "")
        (one,) = (one for one in graph.operators if one.kind == kind)
        assert asked.covers(Operation(graph, one)) == is_covered


@pytest.mark.parametrize("kind", ["MUL", "PRELU", "QUANTIZE"])
@pytest.mark.usefixtures("vela")
def test_products_that_the_reference_shifts_far_left_stay_here(kind: str, tmp_path: Path) -> None:
    """An interpreter of the stream gave other bytes than LiteRT from a scale of 2**16 on."""
    for scale, is_covered in ((2.0**14, True), (2.0**15, False)):
        m = ModelWriter()
        x, y = m.input((1, 2, 3, 4), 0.5, -7), m.constant(np.ones((4,), np.int8), 0.25, 3)
        out, factor = ([x], 0.5) if kind == "QUANTIZE" else ([x, y], 0.125)
        options = ("MulOptions", {}) if kind == "MUL" else None
        m.output(m.node(kind, out, (1, 2, 3, 4), options, scale=factor / scale, zero_point=3))
        path = m.save(tmp_path / "m.tflite")
        graph = load_model(path, is_quiet=True)
        asked = regions.Regions(path, configuration(CONFIG), "")
        assert asked.covers(Operation(graph, graph.operators[0])) == is_covered


@pytest.mark.usefixtures("vela")
def test_pools_of_several_images_stay_here_beside_a_u85(tmp_path: Path) -> None:
    """An interpreter of the stream gave other bytes than LiteRT for the second image."""
    for batch, name, is_covered in (
        (1, "ethos-u85-256", True),
        (2, "ethos-u85-256", False),
        (2, CONFIG, True),
    ):
        m = ModelWriter()
        m.output(m.average_pool(m.input((batch, 4, 9, 2), 0.5, -7), (1, 3), stride=2))
        path = m.save(tmp_path / "m.tflite")
        graph = load_model(path, is_quiet=True)
        asked = regions.Regions(path, configuration(name), "")
        assert asked.covers(Operation(graph, graph.operators[0])) == is_covered


@pytest.mark.usefixtures("vela")
def test_broadcasts_of_five_dimensions_stay_here(tmp_path: Path) -> None:
    """An interpreter of the stream gave other bytes than LiteRT for them."""
    for shape, is_covered in (((5, 3, 4, 2), True), ((2, 5, 3, 4, 2), False)):
        m = ModelWriter()
        x, y = m.input(shape, 0.5, -7), m.input((5, 3, 4, 2), 0.5, -7)
        m.output(m.add(x, y, scale=1.0))
        path = m.save(tmp_path / "m.tflite")
        graph = load_model(path, is_quiet=True)
        asked = regions.Regions(path, configuration(CONFIG), "")
        assert asked.covers(Operation(graph, graph.operators[0])) == is_covered


def test_a_multiplier_of_vela_that_stands_for_two_is_not_replaced() -> None:
    program = stored()
    found = dense.exact_multipliers(
        Operation(
            graph := load_model(MODEL, is_quiet=True),
            next(one for one in graph.operators if one.kind == "FULLY_CONNECTED"),
        )
    )
    assert found is not None
    channels, stream = 10, checked(program)
    assert dense.with_exact_dense(program, stream, [found], channels) is not None
    other = dict.fromkeys(found, b"other")
    assert dense.with_exact_dense(program, stream, [found, other], channels) is None


@pytest.mark.usefixtures("vela")
def test_a_bundle_says_what_to_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle"
    arguments = ["bundle", str(MODEL), "--board", "mps2_an500", "-o", str(bundle)]
    assert main([*arguments, "--ethos-u", CONFIG]) == 0
    assert "mps2_an500 and Ethos-U55-128 does not run on this computer" in capsys.readouterr().out
    manifest = json.loads((bundle / "manifest.json").read_text())
    (needed,) = manifest["external_dependencies"]
    assert (needed["name"], needed["functions"]) == ("Ethos-U55-128", ["ethosu_invoke_v3"])
    assert "link your build, also with the self-test" in (bundle / "README.md").read_text()
    check_bundle(bundle)


@pytest.mark.usefixtures("vela")
def test_an_image_without_the_driver_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--samples", "1") == 1
    assert "give your build of it, --ethos-u-driver DIR" in capsys.readouterr().err


def test_a_defect_of_a_stream_leaves_the_region_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    program = stored()
    bad = replace(program, scratch_bytes=program.scratch_bytes // 2)
    large = replace(program, inputs=(replace(program.inputs[0], size_bytes=65),))
    estimate = Estimate(1, 1, "a system")
    board = load_board("host")
    monkeypatch.setattr(regions, "refused_by_vela", lambda *_: frozenset())
    for made, told in ((bad, "Vela's command stream has"), (large, "other inputs or outputs")):
        monkeypatch.setattr(regions, "compiled_by_vela", lambda *_, made=made: (made, estimate))
        compiled = utvm_deploy.compile(MODEL, board, plugin=find_ethos_u(CONFIG, board))
        assert {one.engine for one in compiled.layers} == {"generic"}
        assert any(told in one.why for one in compiled.layers)


def test_a_dense_layer_is_exact_or_stays_here() -> None:
    """Half of a step is rounded up by the NPU, and away from zero by LiteRT."""
    assert dense._is_exact(0.0123) and dense._is_exact(0.3)
    assert not dense._is_exact(0.125) and not dense._is_exact(1e-6)


def test_dense_layers_that_are_not_found_leave_the_region_to_us() -> None:
    program = stored()
    stream = checked(program)
    assert dense.with_exact_dense(program, stream, [{b"12345": b"54321"}], 10) is None


def test_the_guide_lists_the_operators_and_the_configurations() -> None:
    page = (data_dir("docs") / "guides" / "ethos-u.md").read_text("utf-8")
    listed = page.partition("leaves them to the core:\n")[2].partition(".\n")[0]
    assert set(re.findall(r"[A-Z_0-9]+", listed)) == regions.KINDS
    assert all(f"`{mode}`" in page for mode in MEMORY_MODES)
    row = re.findall(r"`(ethos-u\d+)?-(\d+)`", page.partition("| NPU |")[2].partition("\n")[0])
    names, product = set(), ""
    for begin, macs in row:
        product = begin or product
        names.add(f"{product}-{macs}")
    assert names == {*NAMES}


def test_bad_input_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_it = ["compile", str(MODEL), "--board", "host", "-o", str(tmp_path / "x.tar")]
    for more, told in (
        (["--ethos-u", "ethos-u55-99"], "does not know 'ethos-u55-99'; give one of ethos-u55-32"),
        (["--ethos-u", "ethos-u55-32,dram"], "memory mode 'dram'"),
        (["--ethos-u-driver", str(tmp_path)], "--ethos-u-driver is for --ethos-u CONFIG"),
        (["--ethos-u", CONFIG, "--ethos-u-driver", str(tmp_path)], "has no ethosu_driver.h"),
        (["--ethos-u", CONFIG, "--scratch", "stack"], "reads the arena over the bus"),
    ):
        assert main([*compile_it, *more]) != 0
        error = capsys.readouterr().err
        assert told in error and error.count("\n") <= 2, error
    monkeypatch.setattr("utvm_deploy.base.process.which", lambda program: None)
    assert main([*compile_it, "--ethos-u", CONFIG]) == 1
    assert "pip install 'utvm-deploy[ethos-u]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["digits_int16x8.tflite", "digits_float.tflite"])
def test_a_model_without_int8_has_nothing_for_the_npu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "refused_by_vela", lambda *_: frozenset())
    board = load_board("host")
    path = data_dir("models") / name
    compiled = utvm_deploy.compile(path, board, plugin=find_ethos_u(CONFIG, board))
    assert not any(one.engine.startswith("Ethos") for one in compiled.layers)
    assert "no layer is computed by Ethos-U55-128" in compiled.hint
