"""Spectra of float32 by your CMSIS-DSP: a library of Arm's, called frame by frame.

    export CMSIS_DSP=/path/to/CMSIS-DSP CMSIS_CORE=/path/to/CMSIS/Core/Include
    export CMSIS_DSP_LIBRARY=/path/to/libCMSISDSP.a  # built for the board's core
    utvm verify log_mel.pt2 --board mps2_an500 --plugin plugin.py

It computes the layer SignalSpectrogram, which torch.stft, torchaudio and ONNX's STFT become. Its
values are within the bound of our own transform (docs/reference/float.md), and not equal to them.
"""

import math
import os
from pathlib import Path

from utvm_deploy.backends import Backend, KernelCall, Match, Pattern, StaticLibrary, call

#: What arm_rfft_fast_f32 transforms.
LENGTHS = [2**power for power in range(5, 13)]
FLOAT_BYTES = 4

BODY = """
arm_rfft_fast_instance_f32 fft;
float32_t *const frame = (float32_t *)(void *)scratch, *const numbers = frame + {length};
if (arm_rfft_fast_init_{length}_f32(&fft) != ARM_MATH_SUCCESS) {{
    return 1;
}}
for (uint32_t i = 0; i < {rows} * {frames}; i++) {{
    const float32_t *from = input_0 + i / {frames} * {samples} + i % {frames} * {step};
    float32_t *to = output_0 + i * {bins};
    arm_mult_f32(from, window, frame, {size});
    for (uint32_t j = {size}; j < {length}; j++) {{
        frame[j] = 0.0f;
    }}
    arm_rfft_fast_f32(&fft, frame, numbers, 0);
    // The real number of the highest frequency is in the place of the first imaginary one.
    numbers[{length}] = numbers[1];
    numbers[{length} + 1] = numbers[1] = 0.0f;
    {put}
}}
return 0;"""
PUT = {
    True: "arm_cmplx_mag_squared_f32(numbers, to, {bins});",
    False: "for (uint32_t j = 0; j < {bins}; j++) {{ to[j] = numbers[j]; }}",
}


def spectrogram(match: Match) -> KernelCall | str:
    """SignalSpectrogram, with complex numbers or their squared amounts."""
    op = match.first
    chosen = op.operator.attributes
    if chosen.length not in LENGTHS:
        return f"arm_rfft_fast_f32 has no length of {chosen.length}"
    *rows, samples = op.source.shape
    sizes = {
        "length": chosen.length,
        "size": chosen.size,
        "step": chosen.step,
        "bins": chosen.bins,
        "rows": math.prod(rows),
        "samples": samples,
        "frames": chosen.frames(samples),
    }
    return call(
        match,
        "arm_rfft_fast_f32",
        BODY.format(put=PUT[chosen.is_power].format(**sizes), **sizes),
        header="arm_math.h",
        tables={"window": op.constant(1)},
        scratch_bytes=(2 * chosen.length + 2) * FLOAT_BYTES,
    )


def folder(name: str) -> Path:
    """Where the user has a part of CMSIS."""
    if not os.environ.get(name):
        raise ValueError(f"set {name} to the part of your CMSIS-DSP that the plug-in's text names")
    return Path(os.environ[name])


includes = (folder("CMSIS_DSP") / "Include", folder("CMSIS_CORE"))
backend = Backend(
    name="CMSIS-DSP",
    patterns=(Pattern(("SignalSpectrogram",), spectrogram),),
    code=StaticLibrary(folder("CMSIS_DSP_LIBRARY"), includes),
)
