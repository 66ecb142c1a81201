"""Writes src/samples.h: for each digit the first image of it that models/digits_test.npz holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEADER = Path(__file__).resolve().parent / "src" / "samples.h"


def samples_header() -> str:
    """The header's text."""
    with np.load(ROOT / "models" / "digits_test.npz") as held_out:
        inputs, labels = held_out["inputs"], held_out["labels"]
    lines = [
        "// One image of each digit, as the model takes it. Made by make_samples.py.",
        "//",
        "// SPDX-License-Identifier: Apache-2.0",
        "#ifndef SAMPLES_H",
        "#define SAMPLES_H",
        "",
        "#include <stdint.h>",
        "",
        "// clang-format off",
        "static const struct {",
        "    uint32_t label;",
        "    int8_t image[64];",
        "} samples[] = {",
    ]
    for digit in range(10):
        image = inputs[labels == digit][0].reshape(8, 8)
        lines.append(f"    {{{digit}u, {{")
        lines += ["        " + "".join(f"{value:4d}," for value in row) for row in image]
        lines.append("    }},")
    return "\n".join([*lines, "};", "// clang-format on", "", "#endif", ""])


if __name__ == "__main__":
    HEADER.write_text(samples_header(), encoding="utf-8")
