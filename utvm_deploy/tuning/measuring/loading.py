"""Puts what candidates need on a device: their code, tables, inputs, outputs and scratch.

Tables and inputs stay between groups of candidates. Tables that do not fit RAM, and those that all
candidates of a kernel share, are in flash, in an image that is made for them.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.device import Device, Module, Tensor
from utvm_deploy.device.module import load_module
from utvm_deploy.device.session import Session
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, ScalarArgument, TensorArgument
from utvm_deploy.project.build import build_image_with
from utvm_deploy.project.link_module import ModuleObject, merge_modules
from utvm_deploy.tuning.measuring import inputs
from utvm_deploy.tuning.measuring.loaded import Loaded, Spent
from utvm_deploy.tuning.measuring.stored_tables import StoredTables

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")

#: The most candidates in a module; fewer if RAM or the line is short.
GROUP = 32


class Stopped(Exception):
    """Measuring was stopped while a group was loaded."""


class NoRoom(Exception):
    """The device has no room for a group."""


class Loader:
    """Loads groups of candidates; knows what is on the device already.

    ``is_stopping`` says whether to give up. ``spent`` gets the seconds that loading took.
    """

    def __init__(self, device: Device, spent: Spent, is_stopping: Callable[[], bool]) -> None:
        self._device = device
        self._spent = spent
        self._is_stopping = is_stopping
        self._session: Session | None = None
        # Loaded tables by content, because candidates share them; the one that was used last is at
        # the end. Then the contents that the next group needs.
        self._tables: dict[bytes, Tensor] = {}
        self._wanted: set[bytes] = set()
        # Tables that are in the image instead.
        self._stored = StoredTables(device)

    @property
    def flashes(self) -> bool:
        """Whether code is written into flash, a group at a time, as RAM executes none."""
        return not self._device.board.main_ram.executable

    @property
    def _is_alone(self) -> bool:
        """Whether each candidate is loaded alone, always to the same addresses.

        What a modelled cache misses depends on addresses. So ticks depend on the candidate alone,
        in whichever order and on however many devices candidates are measured.
        """
        cpu = self._device.board.cpu
        has_caches = bool(cpu.icache_bytes or cpu.dcache_bytes)
        return has_caches and self._device.is_modelled and not self.flashes

    def fitting(self, jobs: Sequence[inputs.Job], waiting: Sequence[int]) -> list[int]:
        """The first waiting candidates that fit together; at least one."""
        self._check_session()
        if self._is_alone:
            return list(waiting[:1])
        room = self.session.memory.size * 7 // 8
        taken: set[bytes] = set()
        group: list[int] = []
        for index in waiting[:GROUP]:
            job = jobs[index]
            room -= 0 if self.flashes else job.built.module.size_bytes + 256
            for key, size in inputs.contents_of(job):
                if key not in taken and not self._stored.has(job.work.kernel.key, key):
                    taken.add(key)
                    room -= size + 96
            if group and room < 0:
                break
            group.append(index)
        return group

    def load(self, jobs: Sequence[inputs.Job]) -> Loaded:
        """Put a group on the device; NoRoom if it does not fit."""
        begin = time.perf_counter()
        if self.flashes:
            self._flash(jobs)
        self._check_session()
        self._wanted = {key for job in jobs for key, _ in inputs.contents_of(job)}
        if self._is_alone:
            self.forget_all()
        try:
            return self._load_beside_others(jobs)
        except NoRoom:
            # There may be enough room, but in pieces.
            self.forget_all()
            return self._load_beside_others(jobs)
        finally:
            self._spent.load_s += time.perf_counter() - begin

    def _load_beside_others(self, jobs: Sequence[inputs.Job]) -> Loaded:
        own: list[Tensor] = []

        def empty(size: int, what: str) -> Tensor:
            tensor = self._allocated(lambda: self._device.empty(size, np.uint8, name=what))
            own.append(tensor)
            return tensor

        try:
            outputs: dict[str, Tensor] = {}
            words: list[int] = []
            offsets: list[list[int]] = []
            constants: dict[int, tuple[Tensor | Module, int]] = {}
            for job in jobs:
                if self._is_stopping():
                    raise Stopped
                name, (stride, samples) = job.work.kernel.key, inputs.samples_of(job)
                if name not in outputs:
                    outputs[name] = empty(stride * samples, f"output of {name}")
                own_scratch: list[int] = []
                if not job.built.has_stack_scratch:
                    for scratch in job.built.function.scratch:
                        own_scratch.append(empty(scratch.size_bytes, scratch.name).address)
                starts = []
                for sample in range(samples):
                    starts.append(len(words))
                    for argument in job.built.call.arguments:
                        if isinstance(argument, ScalarArgument):
                            words.append(argument.value & 0xFFFFFFFF)
                        elif inputs.is_output(job, argument):
                            assert isinstance(argument, TensorArgument)
                            at = sample * stride + inputs.places_of(job)[argument.tensor]
                            words.append(outputs[name].address + at)
                        else:
                            assert isinstance(argument, TensorArgument | ConstantArgument)
                            data = inputs.data_of(job, argument, sample)
                            if self._stored.has(name, inputs.key_of(data)):
                                words.append(self._stored.address(name, inputs.key_of(data)))
                                continue
                            tensor = self._table(data, name)
                            constants[tensor.address] = (tensor, zlib.crc32(data.tobytes()))
                            words.append(tensor.address)
                    words += own_scratch
                offsets.append(starts)
            table = self._allocated(lambda: self._device.tensor(np.array(words, np.uint32)))
            own.append(table)
            slots = self._allocated(lambda: self._device.empty(len(jobs), np.uint32))
            own.append(slots)
            kept = list(constants.values())
            entries = [job.built.entry for job in jobs]
            module = None
            if self.flashes:
                code = {entry: self._device.symbol(entry) for entry in entries}
            else:
                module = self._module(jobs)
                code = {entry: module[entry].address for entry in entries}
                block = module.block
                kept.append((module, self._device.checksum(block.address, block.size)))
            found = [outputs[job.work.kernel.key] for job in jobs]
            return Loaded(module, code, table, slots, offsets, found, kept, own)
        except BaseException:
            if not self.session.ended:
                for tensor in own:
                    tensor.free()
            raise

    def _flash(self, jobs: Sequence[inputs.Job]) -> None:
        """An image with all of the group's code; everything else on the device is lost."""
        entries = list(dict.fromkeys(job.built.entry for job in jobs))
        board = self._device.image.board
        modules = _modules(jobs)
        libraries = dict.fromkeys(Path(name) for module in modules for name in module.libraries)
        objects = [*(module.path for module in modules), *libraries]
        self._device.start(build_image_with(objects, entries, board))

    def store_tables(self, jobs: Sequence[inputs.Job]) -> bool:
        """Start an image with the jobs' tables in flash, where models have them.

        False if that does not help. If True, everything else on the device is lost.
        """
        if self.flashes:
            return False
        self._check_session()
        wanted: dict[str, dict[bytes, Array]] = {}
        for job in jobs:
            if tables := inputs.tables_of(job):
                wanted.setdefault(job.work.kernel.key, {}).update(tables)
        return self._stored.store(wanted)

    def _module(self, jobs: Sequence[inputs.Job]) -> Module:
        unique = _modules(jobs)
        if len(unique) == 1 and not unique[0].libraries:
            return self._allocated(lambda: load_module(self.session, unique[0]))
        with TemporaryFolder("utvm-tune") as folder:
            merged = merge_modules(unique, "candidates", Path(folder))
            return self._allocated(lambda: load_module(self.session, merged))

    def _table(self, data: Array, what: str) -> Tensor:
        key = inputs.key_of(data)
        if key not in self._tables:
            self._tables[key] = self._allocated(
                lambda: self._device.tensor(data, name=f"table of {what}")
            )
        self._tables[key] = self._tables.pop(key)
        return self._tables[key]

    def _allocated(self, make: Callable[[], _Made]) -> _Made:
        """The result of ``make``; old tables make room for it. NoRoom if that is too little."""
        while True:
            try:
                return make()
            except DeviceError as error:
                if error.status is not None or self.session.ended:
                    raise
                oldest = next((key for key in self._tables if key not in self._wanted), None)
                if oldest is None:
                    raise NoRoom(str(error)) from error
                self._tables.pop(oldest).free()

    def is_intact(self, loaded: Loaded) -> bool:
        """Whether all that no candidate may change is as it was loaded."""
        return all(
            self._device.checksum(one.block.address, one.block.size) == checksum
            for one, checksum in loaded.constants
        )

    @property
    def session(self) -> Session:
        """The session that the last group was loaded in."""
        assert self._session is not None
        return self._session

    def _check_session(self) -> None:
        """After a restart of the device nothing is there any more."""
        session = self._device.session
        if session is not self._session:
            self._session = session
            self._tables.clear()
            self._stored.check_image()

    def forget_all(self) -> None:
        """Take everything off the device."""
        if not self.session.ended:
            for tensor in self._tables.values():
                tensor.free()
        self._tables.clear()


def _modules(jobs: Sequence[inputs.Job]) -> list[ModuleObject]:
    return list({job.built.module.path: job.built.module for job in jobs}.values())
