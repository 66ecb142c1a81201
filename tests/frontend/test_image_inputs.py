"""``--input``: what a camera gives becomes the model's image, with the reference's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZED = "mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
SCALE, ZERO_POINT = 0.0187, -14
SIDE = 16  # so that an image has 256 pixels


def _image_model(
    path: Path, dtype: str = "int8", *, quantizes: str = "", first: bool = False, side: int = SIDE
) -> Path:
    """A model that gives back its image, in a row. ``first``: channels come first."""
    m = ModelWriter()
    shape = (1, 3, side, side) if first else (1, side, side, 3)
    steps = {"float32": (), "int16": (SCALE, 0), "uint8": (SCALE, ZERO_POINT + 128)}
    x = m.tensor(shape, dtype, *steps.get(dtype, (SCALE, ZERO_POINT)), name="image")
    m.inputs.append(x)
    if quantizes:
        made = m.tensor(shape, quantizes, *steps.get(quantizes, (SCALE, ZERO_POINT)))
        m.operator("QUANTIZE", [x], [made])
        x = made
    row = (1, 3 * side * side)
    m.output(m.node("RESHAPE", [x, m.constant(np.array(row, np.int32))], row))
    return m.save(path)


@pytest.fixture(scope="module")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _image_model(tmp_path_factory.mktemp("image") / "image.tflite")


@pytest.fixture(scope="module")
def on_host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as device:
        yield device


def _run(device: Device, path: Path, words: str, image: np.ndarray) -> np.ndarray:
    """What the model makes of an image."""
    compiled = utvm_deploy.compile(path, device.board, image_input=words)
    (made,), _ = device.load(compiled, into="ram").run([image])
    return np.asarray(made).reshape(-1)


def _every_byte(channels_first: bool = False) -> np.ndarray:
    """An image whose channels have all bytes, each in its own order."""
    rng = np.random.default_rng(8)
    planes = np.stack([rng.permutation(256).astype(np.uint8) for _ in range(3)])
    planes = planes.reshape(1, 3, SIDE, SIDE)
    return planes if channels_first else np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _normalized(pixels: np.ndarray) -> np.ndarray:
    """Real numbers of pixels whose channels are last, as PyTorch computes them."""
    real = pixels.astype(np.float32) / np.float32(255)
    return (real - np.float32(MEAN)) / np.float32(STD)


def _steps(real: np.ndarray, dtype: type = np.int8, zero_point: int = ZERO_POINT) -> np.ndarray:
    """Half away from zero."""
    steps = (real / np.float32(SCALE)).astype(np.float64)
    rounded = np.sign(steps) * np.floor(np.abs(steps) + 0.5) + zero_point
    limits = np.iinfo(dtype)
    return np.clip(rounded, limits.min, limits.max).astype(dtype)


@pytest.mark.spread(1, among=("mps2_an500", "qemu_rv32imc"))
@pytest.mark.parametrize(
    "words",
    [
        "uint8",
        f"uint8 {NORMALIZED}",
        "rgb565 24x20 crop nearest",
        f"rgb565le 20x24 bilinear {NORMALIZED}",
        "uint8 nchw 24x20 crop=20x18 bilinear",
        "rgb565 24x20 crop mean=0.5 std=0.5",
    ],
)
def test_all_layers_are_the_references(words: str, device: Device, image_model: Path) -> None:
    assert utvm_deploy.verify(image_model, device, samples=2, image_input=words).ok


@pytest.mark.spread(1, among=("mps2_an500", "qemu_rv32imc"))
@pytest.mark.parametrize(
    "words", ["rgb565 40x36 crop bilinear", f"uint8 21x19 crop=20x18 nearest {NORMALIZED}"]
)
def test_rows_of_a_camera(words: str, device: Device, image_model: Path) -> None:
    """The first frame has 2,880 bytes, and the image that is resized 3,888."""
    chosen: Any = {"image_input": words, "input_rows": True, "ram_budget": 1500}
    compiled = utvm_deploy.compile(image_model, device.board, **chosen)
    assert compiled.input_rows is not None
    assert utvm_deploy.verify(image_model, device, samples=2, **chosen).ok


@pytest.mark.tools
@pytest.mark.parametrize("first", [False, True], ids=["nhwc", "nchw"])
def test_all_bytes_become_what_the_formula_says(
    first: bool, on_host: Device, tmp_path: Path
) -> None:
    path = _image_model(tmp_path / "image.tflite", first=first)
    pixels, last = _every_byte(first), _every_byte()

    def ordered(image: np.ndarray) -> np.ndarray:
        return (image.transpose(0, 3, 1, 2) if first else image).reshape(-1)

    made = _run(on_host, path, f"uint8 {NORMALIZED}", pixels)
    assert np.array_equal(made, ordered(_steps(_normalized(last))))
    made = _run(on_host, path, "uint8", pixels)
    assert np.array_equal(made, ordered(last ^ 0x80).view(np.int8))


@pytest.mark.tools
def test_tables_are_as_few_as_can_be(image_model: Path) -> None:
    for words, entries in (("mean=0.5 std=0.25", 1), (NORMALIZED, 3)):
        compiled = utvm_deploy.compile(
            image_model, "host", image_input=f"uint8 {words}", allow_float=False
        )
        assert compiled.layers[0].kind == "LOOKUP"
        assert compiled.weights_bytes == 256 * entries, words


@pytest.mark.tools
def test_other_types_of_the_models_input(on_host: Device, tmp_path: Path) -> None:
    pixels = _every_byte()
    real = _normalized(pixels)
    cases = (
        (("float32", "int8"), f"uint8 {NORMALIZED}", _steps(real)),
        (("float32", "int8"), "uint8", (pixels ^ 0x80).view(np.int8)),
        (("float32", "uint8"), "uint8", pixels),
        (("float32", ""), f"uint8 {NORMALIZED}", real),
        (("int16", ""), f"uint8 {NORMALIZED}", _steps(real, np.int16, 0)),
        (("uint8", ""), f"uint8 {NORMALIZED}", _steps(real, np.uint8, ZERO_POINT + 128)),
        (("uint8", ""), "uint8", pixels),
    )
    for number, ((dtype, quantizes), words, expected) in enumerate(cases):
        path = _image_model(tmp_path / f"image{number}.tflite", dtype, quantizes=quantizes)
        made = _run(on_host, path, words, pixels)
        assert np.array_equal(made, expected.reshape(-1)), (dtype, quantizes, words)


@pytest.mark.tools
@pytest.mark.parametrize("words", ["rgb565", "rgb565le"])
def test_all_pixels_of_rgb565(words: str, on_host: Device, tmp_path: Path) -> None:
    """A channel's bits are written once more behind it, and the first eight count."""
    path = _image_model(tmp_path / "image.tflite", "uint8", side=256)
    pixels = np.arange(2**16, dtype=">u2" if words == "rgb565" else "<u2")
    frame = pixels.view(np.uint8).reshape(1, 256, 256, 2)
    five = np.array([int((f"{v:05b}" * 2)[:8], 2) for v in range(32)], np.uint8)
    six = np.array([int((f"{v:06b}" * 2)[:8], 2) for v in range(64)], np.uint8)
    expected = np.stack([five[pixels >> 11], six[pixels >> 5 & 63], five[pixels & 31]], axis=-1)
    assert np.array_equal(_run(on_host, path, words, frame), expected.reshape(-1))
    assert five[-1] == six[-1] == 255


@pytest.mark.tools
def test_the_middle_is_cut_out(on_host: Device, image_model: Path) -> None:
    frame = np.random.default_rng(5).integers(0, 256, (1, 20, 25, 3)).astype(np.uint8)
    made = _run(on_host, image_model, "uint8 25x20 crop", frame)
    assert np.array_equal(made, (frame[:, 2:18, 4:20] ^ 0x80).view(np.int8).reshape(-1))
    frame = np.random.default_rng(5).integers(0, 256, (1, 34, 40, 3)).astype(np.uint8)
    made = _run(on_host, image_model, "uint8 40x34 crop=32x32 nearest", frame)
    # Of two pixels, the centre of the half as large image lies in the second.
    assert np.array_equal(made, (frame[:, 2:33:2, 5:36:2] ^ 0x80).view(np.int8).reshape(-1))


@pytest.mark.tools
def test_the_order_alone(on_host: Device, image_model: Path) -> None:
    planes = np.random.default_rng(5).integers(-128, 128, (1, 3, SIDE, SIDE)).astype(np.int8)
    made = _run(on_host, image_model, "nchw", planes)
    assert np.array_equal(made, planes.transpose(0, 2, 3, 1).reshape(-1))
    graph = load_model(image_model)
    assert utvm_deploy.inspect(image_model, image_input="nhwc").graph.inputs == graph.inputs


@pytest.mark.tools
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("yuv422", "'yuv422' is not known; there are uint8, rgb565"),
        ("", "there are no words; give words such as"),
        ("uint8 rgb565", "it says pixels twice, the second time with 'rgb565'"),
        ("uint8 crop", "crop needs the size of the image that comes, such as 160x120"),
        ("uint8 nearest", "nearest needs the size of the image"),
        ("uint8 0x10 crop", "0x10 has no size of 1x1 to 4096x4096"),
        ("uint8 crop=9", "crop=9 has no size of"),
        ("uint8 mean=a", "mean=a has no number"),
        ("uint8 mean=127.5", "mean=127.5: pixels count from 0 to 1, so mean is from -1 to 1"),
        ("uint8 std=0", "std=0: pixels count from 0 to 1, so std is from above 0 to 1"),
        ("mean=0.5", "mean and std are of pixels; put uint8 or rgb565 in front of them"),
        ("rgb565 nchw", "the pixels of rgb565 lie side by side"),
        ("uint8 20x20", "input 'image' has 16x16 pixels, and the image 20x20; say crop, nearest"),
        ("uint8 20x12 crop", "a crop of 16x16 pixels is larger than the image of 20x12"),
        ("uint8 20x20 crop=24x18 nearest", "a crop of 24x18 pixels is larger than the image of"),
        ("uint8 20x20 crop=18x18", "has 16x16 pixels, and the crop 18x18; say nearest or bilinear"),
        ("uint8 mean=0.1,0.2", "mean has 2 numbers, and input 'image' has the channels 3"),
    ],
)
def test_words_that_do_not_fit(words: str, said: str, image_model: Path) -> None:
    with pytest.raises(ModelError) as error:
        utvm_deploy.inspect(image_model, image_input=words)
    assert said in str(error.value)


@pytest.mark.tools
def test_models_that_take_no_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _image_model(tmp_path / "image.tflite", "float32")
    assert main(["inspect", str(path), "--input", "uint8"]) == 1
    assert "nothing says what a pixel of 255 means; give mean and std" in capsys.readouterr().err
    assert main(["inspect", str(path), "--input", "uint9"]) == 2
    assert "'uint9' is not known" in capsys.readouterr().err
    m = ModelWriter()
    x = m.input((1, 10), SCALE, 0, name="row")
    m.output(m.relu(x))
    with pytest.raises(ModelError, match=r"needs one input that is an image.*'row' \(1, 10\)"):
        utvm_deploy.inspect(m.save(tmp_path / "row.tflite"), image_input="uint8")
    m = ModelWriter()
    x = m.input((1, 8, 8, 1), SCALE, 0, name="grey")
    m.output(m.relu(x))
    with pytest.raises(ModelError, match="'grey' has the channels 1, and rgb565 has red"):
        utvm_deploy.inspect(m.save(tmp_path / "grey.tflite"), image_input="rgb565")


@pytest.mark.tools
def test_run_takes_words_and_files(
    image_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "pixels.npy", _every_byte())
    given = ["--input", "uint8", "--input", str(tmp_path / "pixels.npy")]
    made = ["--output", str(tmp_path / "made.npy")]
    assert main(["run", str(image_model), "--board", "host", *given, *made]) == 0
    expected = (_every_byte() ^ 0x80).view(np.int8).reshape(1, -1)
    assert np.array_equal(np.load(tmp_path / "made.npy"), expected)
    assert main(["run", str(image_model), "--board", "host", *given[:2], "--input", "nchw"]) == 2
    assert "two texts that describe an image" in capsys.readouterr().err
