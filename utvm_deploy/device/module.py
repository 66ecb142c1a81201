"""Code that was loaded into the RAM of a running device.

The host links it for the address it gets and writes it there; nothing is flashed. What compiles and
links is project/link_module.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.device.calls import Argument, Call
from utvm_deploy.device.session import Session
from utvm_deploy.device.workspace_blocks import Block
from utvm_deploy.project.link_module import (
    MODULE_ALIGNMENT,
    LinkedModule,
    ModuleObject,
    link_module,
)

log = logging.getLogger(__name__)

#: The function that makes new code visible to the core; only images that need it have it.
SYNC_SYMBOL = "utvm_sync_code"
# The size of a module depends on its address, because veneers or library functions join it. If it
# has not settled after this number of attempts, something else is wrong.
_PLACEMENTS = 4


class Function:
    """A function of a module; calling it queues a call."""

    def __init__(
        self, module: Module, name: str, address: int, trailing: tuple[Argument, ...] = ()
    ) -> None:
        self._module = module
        self.name = name
        self._address = address
        self._trailing = trailing

    def __repr__(self) -> str:
        return f"<function {self.name} of {self._module!r}>"

    @property
    def address(self) -> int:
        """Its address; on Arm with bit 0 set."""
        _ = self._module.block
        return self._address

    def __call__(
        self, *arguments: Argument, repeat: int = 1, timeout_s: float | None = None
    ) -> Call:
        """Queue a call with tensors and integers; ``timeout_s`` is for all repeats."""
        block = self._module.block
        return self._module.session.call(
            self._address,
            self.name,
            (*arguments, *self._trailing),
            repeat=repeat,
            timeout_s=timeout_s,
            blocks=(block,),
        )


class Module:
    """Functions in the device's RAM; ``Device.load_module`` makes them.

    ``module["conv2d"](x, w, y)`` queues a call. Unload it, or use it as a context manager. The end
    of the device's session removes it in any case.
    """

    def __init__(
        self,
        session: Session,
        linked: LinkedModule,
        block: Block,
        trailing: Mapping[str, tuple[Argument, ...]] | None = None,
        owned: Sequence[Block] = (),
    ) -> None:
        self.session = session
        self.name = linked.name
        self._linked = linked
        self._block = block
        self._trailing = trailing or {}
        # Scratch of its functions, which is freed with the module.
        self._owned = owned

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.unload()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._linked.functions))

    def __contains__(self, name: object) -> bool:
        return name in self._linked.functions

    def __getitem__(self, name: str) -> Function:
        _ = self.block
        functions = self._linked.functions
        if name not in functions:
            hint = did_you_mean(name, functions) or f"; it has {', '.join(sorted(functions))}"
            raise DeviceError(f"module {self.name!r} has no function {name!r}{hint}")
        return Function(self, name, functions[name], self._trailing.get(name, ()))

    @property
    def size_bytes(self) -> int:
        """Bytes of RAM that it takes, variables included."""
        return self._linked.size_bytes

    @property
    def block(self) -> Block:
        """Its block of memory; raises if it was unloaded."""
        self.session.check(self._block.what)
        if self._block.is_freed:
            raise DeviceError(f"{self._block.what} was unloaded; load it again")
        return self._block

    def address(self, name: str) -> int:
        """Address of a variable, a table or a function of the module."""
        self.block.is_shown = True
        known = {**self._linked.functions, **self._linked.objects}
        if name not in known:
            hint = did_you_mean(name, known)
            raise DeviceError(f"module {self.name!r} has no symbol {name!r}{hint}")
        return known[name]

    def unload(self) -> None:
        """Give its memory back, after every call that is queued; may be called again."""
        if self._block.is_freed:
            return
        for symbol, address in self._linked.functions.items():
            if self.session.module_symbols.get(symbol) == address:
                del self.session.module_symbols[symbol]
        for block in (self._block, *self._owned):
            self.session.free(block)


def load_module(
    session: Session,
    module: ModuleObject,
    *,
    trailing: Mapping[str, tuple[Argument, ...]] | None = None,
    owned: Sequence[Block] = (),
) -> Module:
    """Link ``module`` for a free place in the workspace and write it there.

    ``trailing`` has further arguments for each function, ``owned`` blocks that it takes over.
    """
    block, linked = _place(session, module)
    try:
        if not session.can_execute(block.address + session.board.code_offset, max(block.size, 1)):
            raise DeviceError(
                f"{session.board.name} runs no code from the RAM at {block.address:#x}, so "
                f"module {module.name!r} cannot be loaded; build it into an image instead"
            )
        # Zeros of variables travel as one task, not as bytes.
        stored = linked.data
        session.write_now(block.address, stored)
        session.queue.add_zones(block)
        if linked.size_bytes > len(stored):
            session.queue.add_zeros(block, block.address + len(stored))
        sync = session.image.symbols.get(SYNC_SYMBOL)
        if sync is not None:
            session.queue.add_sync(block, sync)
    except BaseException:
        session.free(block)
        raise
    session.module_symbols.update(linked.functions)
    log.info("%s: %d bytes at %#x", block.what, linked.size_bytes, block.address)
    return Module(session, linked, block, trailing, owned)


def _place(session: Session, module: ModuleObject) -> tuple[Block, LinkedModule]:
    """A block and the module linked for just there."""
    what = f"module {module.name!r}"
    address = session.memory.peek(module.size_bytes, MODULE_ALIGNMENT)
    # Without room, find the true size all the same: the error reports the missing bytes.
    linked = link_module(module, session.image, address or session.memory.address)
    for _ in range(_PLACEMENTS):
        size = linked.size_bytes
        block = session.memory.allocate(size, what, MODULE_ALIGNMENT)
        if linked.address != block.address:
            linked = link_module(module, session.image, block.address)
        if linked.size_bytes <= block.size:
            return block, linked
        session.memory.free(block)
    raise DeviceError(f"{what} changes its size with every address; report this module")
