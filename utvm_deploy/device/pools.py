"""The pools of a model on a device: their memory, and the copies of weights in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from utvm_deploy.device.workspace_blocks import Block
from utvm_deploy.project.pools import placed_pools

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel


class DevicePools:
    """Memory for each pool of a model; ``load`` copies the weights there."""

    def __init__(self, model: DeviceModel, *, is_in_ram: bool) -> None:
        self._model = model
        # The one that owns the blocks: the device may have begun another by the time they go.
        self._session = model.device.session
        pools = model.compiled.pools
        board = model.device.board
        #: In the workspace: a process has no regions, and no image has memory for a model in RAM.
        self.blocks: tuple[Block, ...] = ()
        if board.is_host or is_in_ram:
            self.blocks = tuple(self._allocated())
            self.addresses = tuple(block.address for block in self.blocks)
        else:
            self.addresses = tuple(one.address for one in placed_pools(model.compiled, board))
        self._bytes = sum(pool.size_bytes for pool in pools)

    def address(self, name: str) -> int:
        """Where the pool of that name begins."""
        names = [pool.name for pool in self._model.compiled.pools]
        return self.addresses[names.index(name)]

    def load(self) -> None:
        """Queue the call that copies the weights; nothing if there are none."""
        function = self._model.compiled.load_function
        if function is not None:
            limit = self._session.speeds.task_s(2 * self._bytes)
            self._model.call_function(
                function, *self.addresses, timeout_s=limit, blocks=self.blocks
            )

    def free(self) -> None:
        """Give the memory back."""
        for block in self.blocks:
            if not block.is_freed:
                self._session.free(block)

    def _allocated(self) -> Iterator[Block]:
        compiled = self._model.compiled
        for pool in compiled.pools:
            what = f"the pool {pool.name} of {compiled.name}"
            block = self._session.allocate(pool.size_bytes, what)
            block.is_shown = True
            yield block
