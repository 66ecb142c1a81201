"""What a quantized model takes on a board, layer by layer."""

from __future__ import annotations

from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import CYCLES, connect
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.quality.precision.facts import LayerPrice, ModelPrice
from utvm_deploy.results.profiling.layer_costs import profile


@given_only(Chosen())  # the user's shapes are those of the float model
def measure(
    data: bytes, board: Board, *, timing: str = CYCLES, progress: Progress = no_progress
) -> ModelPrice:
    """Compile a .tflite file for a board, run it there once, and take the ticks of each layer.

    Raises CompileError for a model that the board cannot hold, and ConnectError without a board.
    """
    with TemporaryFolder("utvm-price") as folder:
        path = folder / "priced.tflite"
        path.write_bytes(data)
        # Scratch is where ``utvm profile`` has it: the choice must hold for what is deployed.
        compiled = compile_model(path, board)
        samples = random_samples(load_model(path), 1)
        with connect(board, timing=timing) as device:
            found = profile(device.load(compiled), samples, progress)
    layers = {
        one.layer.name: LayerPrice(one.ticks, one.layer.weights_bytes) for one in found.layers
    }
    return ModelPrice(found.ticks, found.unit_label, found.ram_bytes, found.flash_bytes, layers)
