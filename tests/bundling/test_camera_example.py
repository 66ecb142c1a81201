"""The C of the guide to images: a camera's frame, and its rows, through VWW."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from host_model import COMPILE_TIMEOUT_S, STRICT, write_sources

import utvm_deploy
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.files.image_input import image_of_words
from utvm_deploy.oracle.with_custom import run_oracle

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "images.md"
WORDS = "rgb565 160x120 crop bilinear"
SHAPE = (1, 120, 160, 2)
#: The camera: its frame is on stdin, and the scores go to stdout.
MAIN = """
#include <stdio.h>
#include "vww_96_int8.h"
int is_somebody_there(uint8_t *arena);
void camera_read_frame(uint8_t *frame);
void camera_read_row(uint8_t *row);
void camera_read_frame(uint8_t *frame) { (void)!fread(frame, 320, 120, stdin); }
void camera_read_row(uint8_t *row) { (void)!fread(row, 320, 1, stdin); }
static uint8_t arena[VWW_96_INT8_ARENA_BYTES]
    __attribute__((aligned(VWW_96_INT8_ARENA_ALIGNMENT)));
int main(void) {
#ifdef VWW_96_INT8_INPUT_ROWS
    vww_96_int8_reset(arena);
#endif
    const int found = is_somebody_there(arena);
    const int8_t *scores = vww_96_int8_output_0(arena);
    printf("%d %d %d", scores[0], scores[1], found);
    return 0;
}
"""


@pytest.mark.tools
@pytest.mark.parametrize("title", ["frame.c", "rows.c"])
def test_the_guides_program(title: str, shared_models: Path, tmp_path: Path) -> None:
    model = shared_models / "vww_96_int8.tflite"
    frame = np.random.default_rng(21).integers(0, 256, SHAPE).astype(np.uint8)
    rows = title == "rows.c"
    budget = 60_000 if rows else None
    compiled = utvm_deploy.compile(
        model, "host", image_input=WORDS, input_rows=rows, ram_budget=budget
    )
    found = re.search(rf'^```c title="{title}"\n(.*?)^```$', PAGE.read_text(), re.S | re.M)
    assert found
    sources = write_sources(compiled, tmp_path / "c")
    for name, text in ((title, found[1]), ("main.c", MAIN)):
        sources.append(tmp_path / "c" / name)
        sources[-1].write_text(text)
    program = tmp_path / "camera"
    command = ["gcc", *STRICT[:-1], "-O1", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
    done = subprocess.run([program], input=frame.tobytes(), capture_output=True, check=True)
    with given_only(Chosen({}, image=image_of_words(WORDS))):
        ((scores,),) = run_oracle(model, [frame]).outputs
    absent, present = scores.reshape(-1).tolist()
    assert done.stdout.decode() == f"{absent} {present} {int(present > absent)}"
    if not rows:
        assert (
            "two for each pixel, of which the first has the red"
            in compiled.sources["vww_96_int8.h"]
        )
