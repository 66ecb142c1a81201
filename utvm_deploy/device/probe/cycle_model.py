"""The cycle model of one emulated board: the plugin's arguments, and its results.

start ─▶ arguments ─▶ emulator ─▶ snapshots (at each reading of the ticks)
                              ╰─▶ report (when it ends)
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.base import process
from utvm_deploy.base.errors import BuildError, ProbeError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.facts import Board
from utvm_deploy.targets.emulator.model import CycleModel, arguments, counter_block
from utvm_deploy.targets.emulator.plugin import plugin_for

#: Where the image has the block that the model writes its counters to.
COUNTERS_SYMBOL = "utvm_counters"
#: Blocks of code in the report, the hottest first.
REPORTED_BLOCKS = 128


class CycleModelFiles:
    """The files of one emulator's cycle model, in a folder that ``close`` removes."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder("utvm-cycles")
        folder = self._folder.path
        self.snapshots = folder / "snapshots.bin"
        self.report = folder / "report.json"

    def close(self) -> None:
        """May be called again."""
        self._folder.close()


def cycle_model_arguments(
    board: Board, symbols: Mapping[str, int], files: CycleModelFiles
) -> list[str]:
    """What makes the board's emulator count cycles.

    MissingTool if there is no emulator. ProbeError, with the cause, if its plugin cannot be built:
    to count instructions instead would change the unit of what is measured.
    """
    emulator = board.emulator
    assert emulator is not None
    if not process.is_dry_run():
        process.find_tool(emulator.program)  # without it nothing is counted at all
    try:
        plugin = plugin_for(emulator.program)
    except (ProbeError, BuildError) as error:
        raise ProbeError(
            f"{board.name} counts modelled cycles, and its cycle model cannot be used: {error}; to "
            "count instructions instead, give --timing instructions"
        ) from error
    # In a dry run there is no image to look into.
    address = 0 if process.is_dry_run() else symbols[COUNTERS_SYMBOL]
    block = counter_block(board, address) if address else None
    return arguments(
        plugin,
        CycleModel.for_board(board),
        counters=block,
        snapshots=files.snapshots,
        report=files.report,
        hot=REPORTED_BLOCKS,
    )
