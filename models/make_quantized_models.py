"""Quantize digits_float.tflite and diabetes_float.tflite to int8 and to int16 with int8 weights.

ai-edge-quantizer does it, with the smallest and the largest value that each tensor has on the
calibration data. It needs the packages ai-edge-quantizer==0.10.0 and ai-edge-litert==2.3.0:

    python models/make_quantized_models.py            # reads and writes next to this file
    python models/make_quantized_models.py -o OTHER   # or in the folder OTHER

It writes NAME_int8.tflite and NAME_int16x8.tflite in less than a second.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import calibrator, quantizer, recipe
from ai_edge_quantizer.utils import qsv_utils

RECIPES = {"int8": recipe.static_wi8_ai8, "int16x8": recipe.static_wi8_ai16}


def quantize(folder: Path, name: str, scheme: str) -> None:
    """Write one quantized file."""
    source = folder / f"{name}_float.tflite"
    (argument,) = Interpreter(str(source)).get_signature_list()["serving_default"]["inputs"]
    with np.load(folder / f"{name}_calib.npz") as data:
        samples = [{argument: sample[np.newaxis]} for sample in data["inputs"]]
    work = quantizer.Quantizer(str(source), RECIPES[scheme]())
    # Quantizer.calibrate would take a moving average, which cuts the largest values off.
    seen = calibrator.Calibrator(str(source), 1, qsv_update_func=qsv_utils.min_max_update)
    seen.calibrate({"serving_default": samples}, work._recipe_manager)
    made = work.quantize(seen.get_model_qsvs()).quantized_model
    (folder / f"{name}_{scheme}.tflite").write_bytes(made)


def main() -> None:
    """Write all four files."""
    parser = argparse.ArgumentParser(description="quantize the float models")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent)
    folder: Path = parser.parse_args().output
    for name in ("digits", "diabetes"):
        for scheme in RECIPES:
            quantize(folder, name, scheme)


if __name__ == "__main__":
    main()
