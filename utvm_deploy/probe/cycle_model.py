"""The cycle model of one emulated board: the plugin's arguments, and its results.

start ─▶ arguments ─▶ emulator ─▶ snapshots (at each reading of the ticks)
                              ╰─▶ report (when it ends)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from utvm_deploy.base import process
from utvm_deploy.base.errors import BuildError, MissingTool, ProbeError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.facts import Board
from utvm_deploy.emulator.model import CycleModel, arguments, counter_block
from utvm_deploy.emulator.plugin import plugin_for

logger = logging.getLogger("utvm_deploy.probe")

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
    """What makes the board's emulator count cycles; empty where it cannot, and a warning says why.

    The board then counts instructions, and says so itself. MissingTool if there is no emulator.
    """
    emulator = board.emulator
    assert emulator is not None
    if not process.is_dry_run():
        process.find_tool(emulator.program)  # without it nothing is counted at all
    try:
        plugin = plugin_for(emulator.program)
    except (ProbeError, MissingTool, BuildError) as error:
        logger.warning("%s counts instructions, not modelled cycles: %s", board.name, error)
        return []
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
