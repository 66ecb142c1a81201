"""Models that cannot be used: one sentence that names the place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_models import build_model, built, int8, int32
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

Change = Callable[[ModelWriter], None]


def _tensor(number: int, **changes: object) -> Change:
    def change(m: ModelWriter) -> None:
        for name, value in changes.items():
            setattr(m.tensors[number], name, value)

    return change


def _options(**changes: int) -> Change:
    def change(m: ModelWriter) -> None:
        name, fields = m.operators[0].options or ("", {})
        m.operators[0].options = (name, {**fields, **changes})

    return change


def _operator(**changes: object) -> Change:
    def change(m: ModelWriter) -> None:
        for name, value in changes.items():
            setattr(m.operators[0], name, value)

    return change


def _model(**changes: object) -> Change:
    def change(m: ModelWriter) -> None:
        for name, value in changes.items():
            setattr(m, name, value)

    return change


def _i32(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


# Tensors of the one-operator models: 0 input, 1 weights or parameter, 2 bias, last the output.
UNSUPPORTED: list[tuple[str, Change, str]] = [
    ("conv_same", _operator(kind="COS", inputs=[0]), "operator 0 (COS), which makes 'tensor_3'"),
    ("conv_same", _operator(kind="MyOp"), "operator 0 (CUSTOM 'MyOp'), which makes 'tensor_3'"),
    ("conv_same", _tensor(1, dtype="uint8"), "weights 'tensor_1' are uint8; only int8"),
    ("conv_same", _tensor(1, data=None), "weights 'tensor_1' are computed; only constant"),
    ("conv_same", _tensor(1, zero_points=(1, 0, 0, 0)), "have a zero point other than 0"),
    ("conv_per_tensor", _tensor(1, scales=(0.1, 0.2), zero_points=(0, 0), axis=3), "dimension 3"),
    ("conv_same", _tensor(2, data=None), "bias 'tensor_2' must be a constant of int32"),
    ("conv_same", _options(FusedActivationFunction=4), "its fused activation has number 4; suppor"),
    (
        "add",
        _tensor(0, dtype="int16"),
        "tensor 'tensor_0' is int16 with the zero point 5; only 0 is",
    ),
    ("relu", _tensor(0, dtype="uint8"), "is uint8, as in legacy quantized models"),
    ("dequantize", _tensor(1, dtype="float16"), "its output is float16; only float32"),
    ("add", _tensor(0, shape=(5,), scales=(0.1,) * 5, zero_points=(0,) * 5), "only weights may"),
    ("max_pool", _tensor(1, zero_points=(6,)), "its input and output are quantized differently"),
    ("average_pool", _tensor(1, scales=(0.05,)), "its input and output are quantized differently"),
    ("pad", _tensor(2, zero_points=(6,)), "its input and output are quantized differently"),
    ("pad", _tensor(1, data=None), "its paddings 'tensor_1' must be a constant of int32 or int64"),
    ("reshape", _tensor(1, data=None), "its shape 'tensor_1' must be a constant"),
    ("mean_image", _tensor(1, data=None), "its axes 'tensor_1' must be a constant"),
    ("mean_image", _tensor(1, shape=(0,), data=b""), "dynamic or empty shape (0,)"),
    (
        "softmax",
        _tensor(1, zero_points=(-127,)),
        "softmax from int8 to int8 is defined for 1/256 and -128",
    ),
    ("softmax", _tensor(1, scales=(1 / 255,)), "is defined for 1/256 and -128"),
    (
        "softmax",
        _tensor(1, dtype="int16"),
        "softmax from int8 to int16 is defined for 1/65536 and -32768",
    ),
    ("softmax", _tensor(1, dtype="int32"), "'tensor_1' is int32; only int8 and int16 are"),
    ("requantize", _tensor(1, dtype="int32"), "it makes int32 of int8, which the reference cannot"),
    ("requantize", _tensor(0, dtype="int64"), "is int64; it takes only float32, int8, uint8"),
    ("requantize", _tensor(0, scales=(2.0**31 * 0.06,)), "2**30 times that of its output"),
    *(
        (name, _options(**{option: value}), f"its option {option} is {value}; the reference takes")
        for name in ("conv_dilated", "depthwise_dilated")
        for option in ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
        for value in (2**15, 2**16, 2**31 - 1)
    ),
    *(
        ("transpose_conv", _options(**{option: value}), f"its option {option} is {value}; the ref")
        for option in ("StrideH", "StrideW")
        for value in (2**15, 2**16, 2**31 - 1)
    ),
    (
        "max_pool_same",
        _options(FilterHeight=2**16 + 1, StrideH=1),
        "its padding is 32768; the reference takes 32,767 at most",
    ),
    ("dense", _options(WeightsFormat=1), "its weights are shuffled; only the default format"),
]

DAMAGED: list[tuple[str, Change, str]] = [
    ("conv_same", _tensor(1, data=b"123"), "needs 108 bytes, but its buffer has 3"),
    ("conv_same", _tensor(1, scales=(0.1, 0.2, 0.0, 0.1)), "has the scale 0.0, which must be posi"),
    ("conv_same", _tensor(0, scales=(float("nan"),)), "'tensor_0' has the scale nan"),
    ("conv_same", _tensor(0, scales=(float("inf"),)), "'tensor_0' has the scale inf"),
    ("conv_same", _tensor(3, scales=(-0.5,)), "'tensor_3' has the scale -0.5"),
    ("conv_relu6", _tensor(3, scales=(1e-44,)), "its activation's 6 is more than 2**31 steps"),
    ("conv_same", _tensor(0, zero_points=(128,)), "the zero point 128, which is not a int8"),
    ("conv_same", _tensor(0, zero_points=(1, 2)), "has 1 scales but 2 zero points"),
    ("conv_same", _tensor(1, axis=2), "along dimension 2, which does not have that many slices"),
    ("conv_same", _tensor(1, axis=9), "along dimension 9, which does not have"),
    ("conv_same", _tensor(0, scales=(), zero_points=()), "'tensor_0' has no scale and zero point"),
    ("conv_same", _tensor(1, scales=(), zero_points=()), "weights 'tensor_1' have no scale"),
    (
        "conv_same",
        _tensor(0, shape=(1, -1, 6, 3)),
        "has the shape (1, ?, 6, 3), which the file leaves open",
    ),
    ("conv_same", _tensor(0, shape=(0, 7, 6, 3)), "the dynamic or empty shape (0, 7, 6, 3)"),
    ("conv_same", _tensor(3, shape=(0,)), "'tensor_3' has the dynamic or empty shape (0,)"),
    ("conv_same", _tensor(0, shape=(1,) * 9), "has 9 dimensions, more than 8"),
    ("conv_same", _tensor(0, shape=(2**16, 2**16, 6, 3)), "more than 67,108,864 elements"),
    ("conv_same", _tensor(0, name="x" * 5000), "the name of tensor 0 has 5000 bytes"),
    ("conv_same", _tensor(3, shape=(1, 7, 7, 4)), "computes the shape (1, 7, 6, 4), but the file"),
    ("conv_per_tensor", _tensor(2, shape=(3, 1)), "bias 'tensor_2' has shape (3, 1) for 3 chann"),
    ("conv_same", _options(StrideH=0), "its option StrideH is 0, which must be at least 1"),
    ("conv_same", _options(DilationWFactor=-1), "its option DilationWFactor is -1"),
    ("conv_same", _options(Padding=2), "its padding scheme 2 is neither SAME (0) nor VALID (1)"),
    ("conv_same", _operator(options=None), "the file lacks its option StrideH"),
    ("conv_same", _operator(options=("PadOptions", {})), "the file lacks its option StrideH"),
    ("conv_same", _operator(inputs=[0]), "it has 1 inputs, and LiteRT 2.3.0 takes 2 to 3"),
    ("conv_same", _operator(inputs=[-1, 1, 2]), "input 0 is missing"),
    ("conv_same", _operator(inputs=[0, 1, 99]), "names tensor 99, but there are 4"),
    ("conv_same", _operator(inputs=[0, -2, 2]), "names tensor -2, but there are 4"),
    ("conv_same", _operator(outputs=[]), "it has 0 outputs, and LiteRT 2.3.0 takes 1"),
    ("conv_same", _operator(outputs=[3, 0]), "it has 2 outputs, and LiteRT 2.3.0 takes 1"),
    ("conv_valid", _tensor(0, shape=(1, 2, 6, 3)), "its window (3, 2) is larger than its input"),
    ("depthwise_same", _tensor(1, shape=(3, 3, 1, 3)), "do not fit an input of shape (1, 7, 6, 3)"),
    ("depthwise_same", _options(DepthMultiplier=2), "its DepthMultiplier is 2, but its shapes say"),
    ("dense", _tensor(1, shape=(5, 24)), "bias 'tensor_2' has shape (6,) for 5 channels"),
    ("dense", _tensor(0, shape=(1, 21)), "weights of shape (6, 20) do not fit an input of (1, 21)"),
    ("dense", _tensor(1, shape=(6, 20, 1)), "have shape (6, 20, 1), not 2 numbers"),
    ("add", _tensor(0, shape=(1, 4, 2, 5)), "cannot be broadcast together"),
    ("mean_image", _tensor(1, data=_i32(1, 4)), "its axes [1, 4] are not dimensions of"),
    ("pad", _tensor(1, shape=(8,)), "its paddings have shape (8,) for an input"),
    ("pad", _tensor(1, data=_i32(0, 0, -1, 0, 0, 0, 0, 0)), "must not be negative"),
    ("reshape", _tensor(1, data=_i32(4, 7)), "it reshapes to [4, 7], but its output is (4, 6)"),
    ("reshape", _tensor(1, data=_i32(-1, -1)), "it reshapes to [-1, -1], but"),
    ("reshape", _tensor(0, shape=(2, 3, 5)), "have different numbers of elements"),
    ("softmax", _options(Beta=0.0), "its beta is 0.0, which must be positive"),
    ("conv_same", _model(inputs=[]), "the model has no inputs"),
    ("conv_same", _model(outputs=[]), "the model has no outputs"),
    ("conv_same", _model(inputs=[7]), "the list of model inputs names tensor 7, but there are 4"),
    ("conv_same", _model(inputs=[0, 0]), "model input 'tensor_0' is listed twice"),
    ("conv_same", _model(inputs=[0, 1]), "model input 'tensor_1' is a constant"),
    ("conv_same", _model(inputs=[0, 3]), "makes 'tensor_3', which has a value already"),
    ("two_inputs", _model(inputs=[0]), "reads 'tensor_1' before any operator has made it"),
    ("branches", lambda m: m.operators.reverse(), "before any operator has made it"),
]


def _refusal(model: ModelWriter, tmp_path: Path) -> ModelError:
    path = model.save(tmp_path / "model.tflite")
    with pytest.raises(ModelError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith(str(path)) and "\n" not in text
    return caught.value


def _ids(cases: list[tuple[str, Change, str]]) -> list[str]:
    return [f"{name}-{sentence[:30]}" for name, _, sentence in cases]


@pytest.mark.parametrize(("name", "change", "sentence"), UNSUPPORTED, ids=_ids(UNSUPPORTED))
def test_unsupported(name: str, change: Change, sentence: str, tmp_path: Path) -> None:
    model = build_model(name)
    change(model)
    refusal = _refusal(model, tmp_path)
    assert sentence in str(refusal)
    assert isinstance(refusal, UnsupportedOperator) or "empty shape" in sentence


@pytest.mark.parametrize(("name", "change", "sentence"), DAMAGED, ids=_ids(DAMAGED))
def test_damaged(name: str, change: Change, sentence: str, tmp_path: Path) -> None:
    model = build_model(name)
    change(model)
    refusal = _refusal(model, tmp_path)
    assert sentence in str(refusal)
    assert not isinstance(refusal, UnsupportedOperator)


def test_all_unsupported_operators_are_told_at_once(tmp_path: Path) -> None:
    model = build_model("branches")
    model.operators[1].kind = "RNN"
    model.operators[6].kind = "HASHTABLE"
    text = str(_refusal(model, tmp_path))
    assert "2 operators cannot be imported" in text
    assert "operator 1 (RNN)" in text and "operator 6 (HASHTABLE)" in text
    assert "utvm inspect --supported" in text


def test_dynamic_range_model(tmp_path: Path) -> None:
    m = ModelWriter()
    rng = np.random.default_rng(0)
    weights, bias = m.constant(int8(rng, 3, 4), scale=0.1), m.constant(np.zeros(3, np.float32))
    out = m.tensor((1, 3), "float32")
    options = ("FullyConnectedOptions", {})
    m.operator("FULLY_CONNECTED", [m.float_input((1, 4)), weights, bias], [out], options)
    m.output(out)
    text = str(_refusal(m, tmp_path))
    assert "are int8, but activations are float32" in text and "start from the float model" in text


def test_unknown_float_island_is_an_unsupported_operator(tmp_path: Path) -> None:
    m = build_model("float_ends")
    tail = m.tensor(m.tensors[m.outputs[0]].shape, "float32")
    m.operator("MATRIX_DIAG", [m.outputs[0]], [tail])
    m.outputs = [tail]
    refusal = _refusal(m, tmp_path)
    assert isinstance(refusal, UnsupportedOperator) and "operator 3 (MATRIX_DIAG)" in str(refusal)


def test_model_input_of_another_type(tmp_path: Path) -> None:
    m = build_model("add")
    m.tensors[m.tensor((1, 2), "float64")].name = "steps"
    m.inputs.append(len(m.tensors) - 1)
    assert "model input 'steps' is float64; only int8, uint8" in str(_refusal(m, tmp_path))


def test_names_are_printable_in_messages(tmp_path: Path) -> None:
    m = build_model("softmax")
    m.tensors[1].name = "bell\x07\nline"
    m.operators[0].kind = "COS"
    assert "'bell\ufffd\ufffdline'" in str(_refusal(m, tmp_path))


def test_static_shape_is_used_and_int64_parameters_are_read(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 3), 0.1)
    shape = m.constant(np.array([3, 1], np.int64))
    out = m.tensor((3, 1), "int8", 0.1)
    # LiteRT takes the option where the input is not int32.
    m.operator("RESHAPE", [x, shape], [out], ("ReshapeOptions", {"NewShape": [3, 1]}))
    m.output(out)
    assert load_model(m.save(tmp_path / "m.tflite")).operators[0].inputs == (0,)


def test_bias_scale_may_underflow(tmp_path: Path) -> None:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        m.output(m.fully_connected(m.input((1, 4)), int8(rng, 2, 4), int32(rng, 2)))

    m = built(build)
    m.tensors[2].scales = (0.0,)
    assert load_model(m.save(tmp_path / "m.tflite")).operators


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read the model .*nothing\.tflite: No such file"):
        load_model(tmp_path / "nothing.tflite")
    with pytest.raises(ModelError, match=r"cannot read the model .*Is a directory"):
        load_model(tmp_path)


def test_three_subgraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tflite

    monkeypatch.setattr(tflite.Model, "SubgraphsLength", lambda _: 3)
    assert "the model has 3 subgraphs" in str(_refusal(build_model("add"), tmp_path))


@pytest.mark.parametrize(
    ("kind", "table", "scale", "zero"),
    [("L2_NORMALIZATION", "L2NormOptions", 128, 0), ("LOG_SOFTMAX", "LogSoftmaxOptions", 16, 127)],
)
def test_a_single_number_is_no_row(
    kind: str, table: str, scale: int, zero: int, tmp_path: Path
) -> None:
    m = ModelWriter()
    options = (table, {"FusedActivationFunction": 0} if kind == "L2_NORMALIZATION" else {})
    m.output(m.node(kind, [m.input((), 0.05, 0)], (), options, scale=1 / scale, zero_point=zero))
    m.save(tmp_path / "number.tflite")
    with pytest.raises(UnsupportedOperator, match="is a single number; it works on rows"):
        load_model(tmp_path / "number.tflite")


def test_a_tangent_beyond_the_steps_of_its_scale(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(m.node("TANH", [m.input((1, 4), 0.05, 0)], (1, 4), scale=1.4e-45, zero_point=0))
    m.save(tmp_path / "tangent.tflite")
    with pytest.raises(UnsupportedOperator, match="it may make 1, beyond"):
        load_model(tmp_path / "tangent.tflite")


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("int8", (1, 20)), ("int8", (1, -1)), ("int8", (0,)), ("float32", (1, 20)), ("int32", ())],
)
def test_a_custom_operator_is_named_whatever_it_makes(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Its tensors need no scale and no shape; what reads them is not the first trouble."""
    m, rng = ModelWriter(), np.random.default_rng(2)
    made = m.tensor((1, 20), "int8", 0.05, 3)
    m.operator("Windowed", [m.input((1, 20), 0.05, 3)], [made])
    y = m.fully_connected(made, int8(rng, 4, 20), int32(rng, 4))
    m.tensors[made].dtype, m.tensors[made].shape = dtype, shape
    m.tensors[made].scales, m.tensors[made].zero_points = (), ()
    m.output(y)
    refusal = _refusal(m, tmp_path)
    assert isinstance(refusal, UnsupportedOperator)
    assert "cannot be imported: operator 0 (CUSTOM 'Windowed'), which makes" in str(refusal)
    assert "scale" not in str(refusal) and "empty shape" not in str(refusal)


@pytest.mark.parametrize("is_computed", [False, True])
def test_an_output_shape_that_is_not_in_the_file(is_computed: bool, tmp_path: Path) -> None:
    """The first as in TFLite Micro's own tests, where the shape is an input of the model."""
    m = build_model("transpose_conv")
    shape = m.operators[0].inputs[0]
    m.tensors[shape].data = None
    if is_computed:
        given = m.tensor((4,), "int32")
        m.operators.insert(0, OperatorSpec("NEG", [given], [shape], ("NegOptions", {})))
        shape = given
    m.inputs.append(shape)
    said = str(_refusal(m, tmp_path))
    assert "its output shape 'tensor_" in said and "not a constant in the file" in said
    assert "give tf.nn.conv2d_transpose a list of numbers" in said


def test_a_float_model_of_one_custom_operator_is_not_told_to_quantize(tmp_path: Path) -> None:
    m = ModelWriter()
    made = m.tensor((1, 4), "float32")
    m.operator("Windowed", [m.float_input((1, 4))], [made])
    m.output(m.quantize(made))
    said = str(_refusal(m, tmp_path))
    assert "operator 0 (CUSTOM 'Windowed')" in said and "not fully quantized" not in said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (25.7, 0.2, "128 times its output's or more"),
        (4e7, 4e7, "which is undefined"),
    ],
)
def test_hard_swish_of_scales_beyond_the_reference(
    before: float, after: float, said: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x = m.input((1, 8), before)
    m.output(m.node("HARD_SWISH", [x], (1, 8), ("HardSwishOptions", {}), scale=after))
    with pytest.raises(UnsupportedOperator, match=said):
        load_model(m.save(tmp_path / "model.tflite"))
