"""Number formats keep what they promise, and what is wrong with one is said in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError, PluginError
from utvm_deploy.cli.main import main
from utvm_deploy.graph.number_formats import Function, NumberFormat, check_format, format_of
from utvm_deploy.graph.number_formats.formats import all_codes, same, sample_floats
from utvm_deploy.graph.number_formats.shipped import BFLOAT16, FLOAT16, SHIPPED
from utvm_deploy.kernels.contract.format_kernel import check_c

#: A format of 8 bits: the upper half of bfloat16, cut off.
ENCODE = Function(
    "return (uint8_t)(utvm_bits_of(x) >> 24);", lambda x: (x.view(np.uint32) >> 24).astype(np.uint8)
)
DECODE = Function(
    "return utvm_float_of((uint32_t)x << 24);",
    lambda x: (x.astype(np.uint32) << 24).view(np.float32),
)


def of(**changes: Any) -> NumberFormat:
    facts: dict[str, Any] = {"name": "mine", "bits": 8, "encode": ENCODE, "decode": DECODE}
    return NumberFormat(**(facts | changes))


def numpy_of(function: Any) -> Function:
    return Function("return 0;", function)


def test_floats_of_shipped_formats_are_the_nearest() -> None:
    values = sample_floats()
    with np.errstate(all="ignore"):
        wanted = values.astype(np.float16).astype(np.float32)
    assert same(FLOAT16.rounded(values), wanted).all()
    finite = values[np.isfinite(values) & (np.abs(values) < 3.38e38)]
    codes = BFLOAT16.encoded(finite)
    wide = codes.astype(np.int32)
    near = [BFLOAT16.decoded((wide + step).astype(np.uint16)) for step in (-1, 0, 1)]
    gaps = [np.abs(one.astype(np.float64) - finite) for one in near]
    with np.errstate(invalid="ignore"):
        assert not ((gaps[0] < gaps[1]) | (gaps[2] < gaps[1]))[codes % 0x8000 > 0].any()
        ties = (gaps[0] == gaps[1]) | (gaps[2] == gaps[1])
    assert ties.any() and not (codes[ties] & 1).any()


@pytest.mark.tools
@pytest.mark.parametrize("own", [*SHIPPED.values(), of()], ids=lambda own: own.name)
def test_c_and_numpy_give_equal_bits(own: NumberFormat) -> None:
    check_format(own)
    check_c(own)
    assert len(all_codes(own)) == 1 << own.bits


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "My Format"}, "a name has small letters"),
        ({"bits": 17}, "it has 17 bits; give 4 to 16"),
        ({"bits": 7}, "encode gives 255, which 7 bits cannot hold"),
        ({"encode": numpy_of(lambda x: -x.view(np.int32))}, "which 8 bits cannot hold"),
        ({"encode": numpy_of(lambda x: x)}, "encode gives float32; return an array of integers"),
        ({"encode": numpy_of(lambda x: x[:1])}, r"encode of NumPy gives an array of shape \(1,\)"),
        ({"encode": numpy_of(lambda x: 1 / None)}, r"raised TypeError: .*\(line \d+ of .*py\)"),
        ({"decode": numpy_of(lambda x: x * 1.0)}, "decode gives float64; return an array of float"),
        ({"decode": numpy_of(lambda x: x.astype(np.float32))}, "0x1 is 1, and encode and decode"),
        ({"encode": 3}, "encode is not a Function; give Function"),
        ({"encode": Function(None, ENCODE.numpy)}, "the C of encode is not a text"),  # type: ignore[arg-type]
        ({"operations": {"root": ENCODE}}, "there is no operation 'root'; there are add, "),
    ],
)
def test_a_format_that_lies_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(PluginError, match=told) as caught:
        check_format(of(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.tools
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"encode": Function("return x == 0.0f;", ENCODE.numpy)},
            r"encode\(0\) is 1 in C and 0 in NumPy",
        ),
        ({"decode": Function("return y;", DECODE.numpy)}, "C does not compile or run: .y. undecl"),
        (
            {"operations": {"add": Function("return a & b;", lambda a, b: b)}},
            r"add\(\d+, \d+\) is \d+ in C and \d+ in NumPy; correct one of them",
        ),
    ],
)
def test_c_that_differs_is_refused(changes: dict[str, Any], told: str) -> None:
    own = of(**changes)
    check_format(own)
    with pytest.raises(PluginError, match=told):
        check_c(own)


def test_a_file_registers_a_format(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    head = (
        "import numpy as np, utvm_deploy\n"
        "F = utvm_deploy.number_formats.Function\n"
        "E = F('return (uint8_t)(utvm_bits_of(x) >> 24);',\n"
        "      lambda x: (x.view(np.uint32) >> 24).astype(np.uint8))\n"
        "D = F('return utvm_float_of((uint32_t)x << 24);',\n"
        "      lambda x: (x.astype(np.uint32) << 24).view(np.float32))\n"
    )
    line = "utvm_deploy.number_formats.register({!r}, 8, E, D)\n".format
    path.write_text(head + line("eight"))
    assert format_of(str(path)).name == format_of(path).name == format_of("eight").name == "eight"
    path.write_text(head + line("one") + line("two"))
    with pytest.raises(PluginError, match=r"registers one, two; name one of them: --format .*:one"):
        format_of(path)
    assert format_of(f"{path}:two").name == "two"
    for text, told in (
        (head, "registers no format; call utvm_deploy.number_formats.register"),
        (head + line("float16"), "this name belongs to a format of utvm_deploy"),
        ("def (", "loading it raised SyntaxError"),
    ):
        path.write_text(text)
        with pytest.raises(PluginError, match=told):
            format_of(path)
    with pytest.raises(PluginError, match="there is no such file; give a Python file"):
        format_of("no/such.py")
    with pytest.raises(PluginError, match="there is no number format 'half'; there are bfloat16"):
        utvm_deploy.compile("model.tflite", "host", number_format="half")


def test_a_quantized_model_has_no_weights_for_a_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(str(utvm_deploy.models.__path__[0])).parents[1] / "models" / "digits.tflite"
    command = ["compile", str(model), "--board", "host", "-o", str(tmp_path / "x.tar")]
    assert main([*command, "--format", "bfloat16"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith(
        "has no float32 weights, so --format does not apply; it is for float models"
    )
    assert main([*command, "--format", "half"]) == 1
    assert "there is no number format 'half'" in capsys.readouterr().err


def test_a_weight_beyond_the_range_is_refused(tmp_path: Path) -> None:
    from float_writer import FloatWriter

    m = FloatWriter()
    x = m.input((1, 4))
    weights = np.full((3, 4), 1e5, np.float32)
    m.output(m.fully_connected(x, weights, np.zeros(3, np.float32)))
    path = m.save(tmp_path / "large.tflite")
    with pytest.raises(ModelError, match="a weight is 100000, which float16 cannot hold; choose"):
        utvm_deploy.compile(path, "host", number_format="float16")
    assert utvm_deploy.compile(path, "host", number_format="bfloat16").weights_bytes
