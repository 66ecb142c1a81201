"""Small models of one signal operator each, and inputs that meet what counts in them.

``python -m tests.oracle.signal_vectors`` runs them in TFLite Micro and keeps what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flatbuffers import flexbuffers
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter

#: The schema's numbers of element types, which some options are.
TYPES = {"float32": 0, "int32": 2, "int16": 7}


@dataclass(frozen=True, eq=False)
class SignalCase:
    """An operator: its options, its inputs for several runs, and its constants behind them."""

    kind: str
    options: Mapping[str, int | bool]
    inputs: Sequence[np.ndarray]  # the first dimension is the run
    outputs: Sequence[tuple[str, tuple[int, ...]]]
    constants: Sequence[np.ndarray] = ()
    valid: int | None = None  # the output that says whether the first one counts

    def save(self, path: Path) -> Path:
        """The model of this operator."""
        m = ModelWriter()
        self.add_to(m)
        return m.save(path)

    def add_to(self, m: ModelWriter) -> None:
        """The operator, its inputs and its outputs, which are those of the model, too."""
        inputs = [m.tensor(one.shape[1:], one.dtype.name) for one in self.inputs]
        constants = [m.constant(one) for one in self.constants]
        made = [m.tensor(shape, dtype) for dtype, shape in self.outputs]
        options = options_of(self.options) if self.options else b""
        m.operators.append(
            OperatorSpec(self.kind, [*inputs, *constants], made, custom_options=options)
        )
        m.inputs += inputs
        m.output(*made)

    def counting(self, vectors: Mapping[str, np.ndarray], name: str, run: int) -> list[int]:
        """The outputs of a run that TFLite Micro has written."""
        is_valid = self.valid is None or bool(vectors[f"{name}/{self.valid}"][run])
        return list(range(0 if is_valid else 1, len(self.outputs)))


def options_of(options: Mapping[str, int | bool]) -> bytes:
    """The flexbuffer of options."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in options.items():
            (builder.Bool if isinstance(value, bool) else builder.Int)(name, value)
    return bytes(builder.Finish())


def signal_cases() -> dict[str, SignalCase]:
    """All of them; the inputs are the same in every run."""
    rng = np.random.default_rng(7)
    cases = {**_transforms(rng), **_spectra(rng), **_frames(rng)}
    return dict(sorted(cases.items()))


def _ends(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Three runs: any values, only the largest amounts, and small ones."""
    if dtype == "float32":
        return rng.standard_normal((3, *shape)).astype(np.float32)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    anything = rng.integers(low, high, shape, dtype, endpoint=True)
    large = rng.choice(np.array([low, high], dtype), shape)
    small = rng.integers(-9 if low else 0, 9, shape).astype(dtype)
    return np.stack([anything, large, small])


def _transforms(rng: np.random.Generator) -> dict[str, SignalCase]:
    cases = {}
    for dtype in TYPES:
        # Radices 4 and 2, 3 and 5, several rows, a row that is too short, and the least length.
        for length, shape in ((64, (64,)), (60, (2, 60)), (36, (30,)), (4, (4,)), (10, (10,))):
            options = {"T": TYPES[dtype], "fft_length": length}
            made, back = (*shape[:-1], length + 2), (*shape[:-1], length)
            x, spectrum = _ends(rng, dtype, shape), _ends(rng, dtype, made)
            name = f"{dtype} {length}"
            cases[f"rfft {name}"] = SignalCase("SignalRfft", options, [x], [(dtype, made)])
            cases[f"irfft {name}"] = SignalCase("SignalIrfft", options, [spectrum], [(dtype, back)])
    return cases


def _spectra(rng: np.random.Generator) -> dict[str, SignalCase]:
    samples = _ends(rng, "int16", (2, 30))
    window = rng.integers(-(2**15), 2**15, 30).astype(np.int16)
    scaled = np.stack([*_ends(rng, "int16", (24,)), np.zeros(24, np.int16)])
    scaled[1, :5] = [-(2**15), -5, 3, 0, -1]
    scaled[1, 5:] = 2
    words = np.stack([_words(rng, 32) for _ in range(3)])
    noises = np.stack([_words(rng, 32) for _ in range(3)])
    longs = np.stack([_words(rng, 64)[:32] for _ in range(2)])
    longs[0, :6] = [0, 1, 2**32 - 1, 2**32, 2**64 - 1, 2**62]
    bits = np.array([0, 5], np.int32)
    gains = rng.integers(-(2**15), 2**15, 125).astype(np.int16)
    widths = np.array([3, 0, 7, 5, 2], np.int16)
    firsts = np.array([0, 3, 3, 10, 15], np.int16)
    starts = np.array([1, 4, 4, 11, 14], np.int16)
    weights = [rng.integers(-(2**15), 2**15, 17).astype(np.int16) for _ in range(2)]
    smoothing = {
        "alternate_one_minus_smoothing": 14000,
        "alternate_smoothing": 2384,
        "min_signal_remaining": 819,
        "num_channels": 32,
        "one_minus_smoothing": 15975,
        "smoothing": 409,
        "smoothing_bits": 10,
        "spectral_subtraction_bits": 14,
    }
    channels = [("uint32", (32,))]
    return {
        "window": SignalCase(
            "SignalWindow", {"shift": 12}, [samples], [("int16", (2, 30))], [window]
        ),
        "auto scale": SignalCase(
            "SignalFftAutoScale", {}, [scaled], [("int16", (24,)), ("int32", ())]
        ),
        "energy": SignalCase(
            "SignalEnergy",
            {"end_index": 15, "start_index": 0},
            [samples[:, 0]],
            [("uint32", (15,))],
        ),
        "filter bank": SignalCase(
            "SignalFilterBank",
            {"num_channels": 4},
            [words[:, :17]],
            [("uint64", (4,))],
            [*weights, starts, firsts, widths],
        ),
        "square root": SignalCase(
            "SignalFilterBankSquareRoot", {}, [longs, bits], [("uint32", (32,))]
        ),
        "pcan": SignalCase("SignalPCAN", {"snr_shift": 6}, [words, noises], channels, [gains]),
        "log": SignalCase(
            "SignalFilterBankLog",
            {"input_correction_bits": 3, "output_scale": 1600},
            [words],
            [("int16", (32,))],
        ),
        **{
            f"subtraction {clamping}": SignalCase(
                "SignalFilterBankSpectralSubtraction",
                {"clamping": clamping, **smoothing},
                [words[:, :] >> np.uint32(4)],
                channels * 2,
            )
            for clamping in (False, True)
        },
    }


def _words(rng: np.random.Generator, bits: int) -> np.ndarray:
    """Unsigned numbers of all lengths, the shortest first."""
    values = [0, 1, 2, 3, *(int(rng.integers(1 << k)) | 1 << k for k in range(2, bits))]
    return np.array(values[2 : 2 + bits], f"uint{bits}")


def _frames(rng: np.random.Generator) -> dict[str, SignalCase]:
    samples = rng.integers(-(2**15), 2**15, (6, 2, 8)).astype(np.int16)
    cases = {
        f"delay {length}": SignalCase(
            "SignalDelay", {"delay_length": length}, [samples], [("int16", (2, 8))]
        )
        for length in (0, 3, 11)
    }
    for size, step, prefill in ((10, 4, False), (10, 4, True), (8, 8, False), (3, 4, False)):
        shape = (2, 8 // step, size)
        cases[f"framer {size} {step} {prefill}"] = SignalCase(
            "SignalFramer",
            {"frame_size": size, "frame_step": step, "prefill": prefill},
            [samples],
            [("int16", shape), ("bool", ())],
            valid=1,
        )
    for dtype in ("int16", "float32"):
        frames = _ends(rng, dtype, (2, 3, 8))
        cases[f"overlap add {dtype}"] = SignalCase(
            "SignalOverlapAdd",
            {"T": TYPES[dtype], "frame_step": 3},
            [frames],
            [(dtype, (2, 9))],
        )
    for left, right, step in ((1, 1, 2), (0, 2, 3), (2, 0, 1)):
        cases[f"stacker {left} {right} {step}"] = SignalCase(
            "SignalStacker",
            {
                "num_channels": 8,
                "stacker_left_context": left,
                "stacker_right_context": right,
                "stacker_step": step,
            },
            [samples[:, 0]],
            [("int16", ((left + right + 1) * 8,)), ("bool", ())],
            valid=1,
        )
    return cases


def signal(
    m: ModelWriter,
    kind: str,
    inputs: list[int],
    outputs: list[tuple[tuple[int, ...], str]],
    **options: int | bool,
) -> list[int]:
    """A signal operator; its outputs."""
    made = [m.tensor(shape, dtype) for shape, dtype in outputs]
    data = options_of(options) if options else b""
    m.operators.append(OperatorSpec(f"Signal{kind}", inputs, made, custom_options=data))
    return made


def features(m: ModelWriter, rng: np.random.Generator) -> int:
    """Logarithms of seven channels, of 80 samples a run and of 40 before them."""
    x = m.tensor((80,), "int16")
    m.inputs.append(x)
    x, _ = signal(
        *(m, "Framer", [x], [((1, 120), "int16"), ((), "bool")]),
        frame_size=120,
        frame_step=80,
        prefill=True,
    )
    hann = 4096 * np.sin(np.pi * (np.arange(120) + 0.5) / 120) ** 2
    window = m.constant(np.round(hann).astype(np.int16))
    (x,) = signal(m, "Window", [x, window], [((1, 120), "int16")], shift=12)
    x, bits = signal(
        m,
        "FftAutoScale",
        [m.node("RESHAPE", [x, m.constant(np.array([120], np.int32))], (120,))],
        [((120,), "int16"), ((), "int32")],
    )
    (x,) = signal(m, "Rfft", [x], [((130,), "int16")], T=TYPES["int16"], fft_length=128)
    (x,) = signal(m, "Energy", [x], [((65,), "uint32")], start_index=1, end_index=61)
    widths = np.array([3, 4, 5, 6, 8, 10, 11, 13], np.int16)
    firsts = (np.cumsum(widths) - widths).astype(np.int16)
    weights = rng.integers(0, 4096, int(widths.sum())).astype(np.int16)
    tables = [weights, 4096 - weights, firsts + np.int16(1), firsts, widths]
    constants = [m.constant(one.astype(np.int16)) for one in tables]
    (x,) = signal(m, "FilterBank", [x, *constants], [((7,), "uint64")], num_channels=7)
    (x,) = signal(m, "FilterBankSquareRoot", [x, bits], [((7,), "uint32")])
    x, noise = signal(
        *(m, "FilterBankSpectralSubtraction", [x], [((7,), "uint32")] * 2),
        alternate_one_minus_smoothing=14000,
        alternate_smoothing=2384,
        clamping=False,
        min_signal_remaining=819,
        num_channels=7,
        one_minus_smoothing=15975,
        smoothing=409,
        smoothing_bits=10,
        spectral_subtraction_bits=14,
    )
    gains = m.constant(np.linspace(2**14, 100, 125).astype(np.int16))
    (x,) = signal(m, "PCAN", [x, noise, gains], [((7,), "uint32")], snr_shift=6)
    (x,) = signal(
        *(m, "FilterBankLog", [x], [((7,), "int16")]), input_correction_bits=3, output_scale=1600
    )
    return x


def front_end(path: Path) -> tuple[Path, list[np.ndarray]]:
    """Features of sound, from frames to a stack of three, and the sound of six runs.

    Two outputs: the stack, and whether it counts.
    """
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = features(m, rng)
    x = m.node("CAST", [x], (7,), ("CastOptions", {}), dtype="int32")
    x = m.node("DIV", [x, m.constant(np.array([-3], np.int32))], (7,), ("DivOptions", {}))
    x = m.node("CAST", [x], (7,), ("CastOptions", {}), dtype="int16")
    m.output(
        *signal(
            *(m, "Stacker", [x], [((21,), "int16"), ((), "bool")]),
            num_channels=7,
            stacker_left_context=1,
            stacker_right_context=1,
            stacker_step=2,
        )
    )
    loudness = (1 << np.arange(4, 16, 2)) - 1
    sound = [(rng.uniform(-1, 1, 80) * most).astype(np.int16) for most in loudness]
    return m.save(path), sound
