"""One assembler for Thumb, the DSP extension and Helium.

An ``Assembler`` collects the instructions of one routine. A method call is an instruction:

    class Slots(StackFrame):
        end: Slot

    a = Assembler(timing, ("const int8_t *bytes", "int32_t count", "int32_t *sum"))
    a.enter(("r4-r5", "lr"), Slots)
    a.add("r3", "r0", "r1")
    a.str("r3", Slots.end)
    a.mov("r4", 0)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        a.ldrsb("r5", post("r0", 1))
        a.add("r4", "r4", "r5")
        a.ldr("r3", Slots.end)
        a.cmp("r0", "r3")
    a.str("r4", at(a.argument("sum")))
    a.leave()

The dot of a mnemonic is an underscore: ``a.vadd_i32("q0", "q0", "q1")``. Python's keyword ``and``
is ``a.and_``. Registers are allocated by hand: automatic allocation was 1.7 to 2.5 % slower. Code
stands as it is written, except in ``scheduled`` blocks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from utvm_deploy.kernels.isa.code_cache import is_ordered
from utvm_deploy.kernels.isa.instructions import FLAGS, Instruction
from utvm_deploy.kernels.isa.list_scheduler import ordered
from utvm_deploy.kernels.isa.mnemonics import PREDICATE, Operand, Slot, instruction, registers_of
from utvm_deploy.kernels.isa.naked_function import naked_function
from utvm_deploy.targets.arm_m.timings import timing_of
from utvm_deploy.targets.contract.timing import AnyKind, Kind, Timing, VectorKind

_WORD = 4
_HALF = 0xFFFF
_CONDITIONS = ("eq", "ne", "ge", "gt", "le", "lt", "hs", "lo", "hi", "ls", "mi", "pl", "vs", "vc")
_OPPOSITE = {"eq": "ne", "ge": "lt", "gt": "le", "hs": "lo", "hi": "ls", "mi": "pl", "vs": "vc"}
_OPPOSITE |= {other: one for one, other in _OPPOSITE.items()}
#: Most instructions of Armv6-M reach the registers up to r7 only.
_LAST_LOW = 7
#: Registers that hold the first arguments; the caller puts the others on the stack.
_ARGUMENTS = ("r0", "r1", "r2", "r3")
#: Instructions that a conditional branch of Armv6-M surely reaches back over, of two bytes each.
_NEAR = 120
#: Stands for a condition in blocks that the predicate of lanes selects, and ends their mnemonics.
_LANES = "t"
#: Loop starts of Helium that predicate the last turn, and so end with LETP.
_TAIL_PREDICATED = ("dlstp", "wlstp")


class StackFrame:
    """The stack frame of a routine: a class of slots, a word each unless ``words`` says more.

    A subclass of a frame has the slots of its base first. ``size_bytes=`` makes a frame larger.
    """

    size_bytes: ClassVar[int] = 0

    def __init_subclass__(cls, size_bytes: int = 0) -> None:
        offset = cls.size_bytes
        for name in inspect.get_annotations(cls):
            count = vars(cls).get(name, 1)
            setattr(cls, name, Slot(offset))
            offset += _WORD * count
        cls.size_bytes = max(offset, size_bytes)


def words(count: int) -> Slot:
    """A slot of several words, as a default in a ``StackFrame``: ``scales: Slot = words(4)``."""
    return count  # type: ignore[return-value]  # StackFrame puts the slot in its place


class Label:
    """A place in a routine to branch to."""


class Assembler:
    """The instructions of one routine in the making."""

    def __init__(
        self,
        timing: Timing | str | None = None,
        parameters: str | Sequence[str] = (),
        *,
        has_thumb2: bool = True,
    ) -> None:
        """``timing`` orders ``scheduled`` blocks: that of a core, or the name of a core.

        ``parameters`` are those of the C function: a list as C has it, or each as a text.

        Without Thumb-2 (Armv6-M), PUSH and POP reach only r0 to r7, and a conditional branch only
        254 bytes. ``enter``, ``leave`` and ``b`` take more instructions then.
        """
        self.timing = timing_of(timing) if isinstance(timing, str) else timing
        self.has_thumb2 = has_thumb2
        texts = parameters.split(",") if isinstance(parameters, str) else parameters
        self.parameters = tuple(one.strip() for one in texts)
        self._items: list[Instruction | Label | str] = []
        self._placed: set[Label] = set()
        self._targets: dict[int, Label] = {}  # position of a branch -> where it goes
        self._pending: list[Instruction] | None = None  # in a scheduled block
        self._condition = ""
        self._conditions: list[str] = []  # of the instructions in a conditional block
        self._names = [re.findall(r"\w+", one)[-1] for one in self.parameters]
        self._saved: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._frame_bytes = 0
        self._saved_bytes = 0

    def __getattr__(self, mnemonic: str) -> Callable[..., None]:
        if mnemonic.startswith("__"):
            raise AttributeError(mnemonic)
        name = ".".join(mnemonic.rstrip("_").split("_"))

        def emit(*operands: Operand) -> None:
            self.emit(instruction(name, *operands))

        return emit

    # Instructions.

    def emit(self, *code: Instruction) -> None:
        """Instructions that exist already."""
        if self._pending is not None:
            self._pending += code
        else:
            self._items += [self._conditional(one) for one in code]

    def load(self, **slots: Slot) -> None:
        """LDR registers from slots, in this order: ``a.load(r4=Slots.count, r5=Slots.end)``."""
        for register, slot in slots.items():
            self.ldr(register, slot)

    def store(self, **slots: Slot) -> None:
        """STR registers to slots, in this order."""
        for register, slot in slots.items():
            self.str(register, slot)

    @contextmanager
    def scheduled(self, *, is_loop: bool = False) -> Iterator[None]:
        """Straight code, which the list scheduler orders; ``is_loop``: it follows itself."""
        if self.timing is None:
            raise ValueError("scheduled code needs the timing of a core")
        self._straight_only("a scheduled block")
        self._pending = []
        yield
        code, self._pending = self._pending, None
        self._items += ordered(code, self.timing, is_loop=is_loop) if is_ordered() else code

    @contextmanager
    def when(self, condition: str) -> Iterator[Callable[[], None]]:
        """One to four instructions that are executed if the condition holds: an IT block.

        It gives a function to call before the instructions for the opposite condition.
        """

        def otherwise() -> None:
            self._condition = _OPPOSITE[condition]

        with self._conditional_block(condition) as made:
            yield otherwise
        pattern = "".join("t" if one == condition else "e" for one in made[1:])
        head = Instruction(f"it{pattern} {condition}", Kind.IT, second=(FLAGS,))
        self._items.insert(len(self._items) - len(made), head)

    @contextmanager
    def predicated(self) -> Iterator[None]:
        """One to four vector instructions for the lanes that the predicate selects."""
        with self._conditional_block(_LANES) as made:
            yield
        head = Instruction(
            f"vps{'t' * len(made)}", VectorKind.VECTOR_PREDICATE, second=(PREDICATE,)
        )
        self._items.insert(len(self._items) - len(made), head)

    @contextmanager
    def _conditional_block(self, condition: str) -> Iterator[list[str]]:
        """Gives the conditions of the instructions in the block."""
        self._straight_only("a conditional block")
        self._condition = condition
        self._conditions.clear()
        yield self._conditions
        self._condition = ""
        if not 1 <= len(self._conditions) <= 4:
            count = len(self._conditions)
            raise ValueError(f"a conditional block has one to four instructions, not {count}")

    def _conditional(self, one: Instruction) -> Instruction:
        if not self._condition:
            return one
        self._conditions.append(self._condition)
        mnemonic, _, operands = one.text.partition(" ")
        name, dot, kind = mnemonic.partition(".")
        flags = PREDICATE if self._condition == _LANES else FLAGS
        text = f"{name}{self._condition}{dot}{kind} {operands}"
        # What it does not write stays as it is.
        return replace(one, text=text, second=(*one.second, flags, *one.writes))

    # Places and branches.

    def place(self, label: Label, *, aligned: bool = False) -> None:
        """Put a label here; ``aligned``: at a whole fetch, as the target of a hot branch."""
        self._straight_only("a label")
        if label in self._placed:
            raise ValueError("a label has one place")
        self._items += [".balign 8", label] if aligned else [label]
        self._placed.add(label)

    def here(self, *, aligned: bool = False) -> Label:
        """A new label at this place."""
        label = Label()
        self.place(label, aligned=aligned)
        return label

    def b(self, label: Label, condition: str = "") -> None:
        """Branch to a label, always or if a condition holds."""
        if condition not in ("", *_CONDITIONS):
            raise ValueError(f"{condition} is not a condition of a branch")
        if condition and not self.has_thumb2 and self._is_far(label):
            with self.unless(_OPPOSITE[condition]):
                self.b(label)
            return
        kind = Kind.BRANCH_CONDITIONAL if condition else Kind.BRANCH
        self._branch(f"b{condition} ", label, kind, (FLAGS,) if condition else ())

    def _is_far(self, label: Label) -> bool:
        """Whether a place further up is out of reach of a conditional branch of Armv6-M."""
        return label in self._placed and len(self._items) - self._items.index(label) > _NEAR

    def cbz(self, register: str, label: Label) -> None:
        """Branch to a label further down if a register is 0."""
        self._branch(f"cbz {register}, ", label, Kind.COMPARE_BRANCH, (register,))

    @contextmanager
    def loop(self, condition: str, *, aligned: bool = False) -> Iterator[Label]:
        """A block that runs again while the condition holds at its end; gives its first place."""
        top = self.here(aligned=aligned)
        yield top
        self.b(top, condition)

    @contextmanager
    def unless(self, condition: str) -> Iterator[Label]:
        """A block that is skipped if the condition holds; gives the place after it."""
        behind = Label()
        self.b(behind, condition)
        yield behind
        self.place(behind)

    @contextmanager
    def hardware_loop(self, start: str, count: str) -> Iterator[None]:
        """A block that LR counts: ``start`` is dls, wls (0 turns, too), or as in ``dlstp.8``."""
        self._straight_only("a loop")
        behind, is_while = Label(), start.startswith("wl")
        if is_while:
            self._branch(f"{start} lr, {count}, ", behind, VectorKind.LOOP_START, (count,))
        else:
            begin = VectorKind.LOOP_START
            self.emit(Instruction(f"{start} lr, {count}", begin, (count,), writes=("lr",)))
        top = self.here()
        yield
        end = "letp" if start.startswith(_TAIL_PREDICATED) else "le"
        self._branch(f"{end} lr, ", top, VectorKind.LOOP_END, ("lr",))
        if is_while:
            self.place(behind)

    def _branch(self, text: str, label: Label, kind: AnyKind, reads: tuple[str, ...]) -> None:
        self._straight_only("a branch")
        self._targets[len(self._items)] = label
        self._items.append(Instruction(text, kind, reads))

    def _straight_only(self, what: str) -> None:
        if self._pending is not None:
            raise ValueError(f"a scheduled block cannot hold {what}")
        if self._condition:
            raise ValueError(f"a conditional block cannot hold {what}")

    # The frame and the arguments.

    def enter(
        self,
        saved: tuple[str, ...] = ("r4-r11", "lr"),
        frame: type[StackFrame] = StackFrame,
        *,
        vectors: tuple[str, ...] = (),
    ) -> None:
        """Save registers (the last is lr) and make the frame.

        Without Thumb-2, registers above r7 are saved through r4 to r7.
        """
        self._saved, self._frame_bytes = (saved, vectors), frame.size_bytes
        self._saved_bytes = _WORD * len(registers_of(saved))
        self._saved_bytes += 2 * _WORD * len(registers_of(vectors))
        if self.has_thumb2:
            self.push(saved)
        else:
            low, high = _low_and_high(saved)
            self.push((*low, "lr"))
            for through, register in zip(low, high, strict=False):
                self.mov(through, register)
            if high:
                self.push(low[: len(high)])
        if vectors:
            self.vpush(vectors)
        if self._frame_bytes:
            self.sub("sp", self._frame_bytes)

    def leave(self) -> None:
        """Undo ``enter`` and return."""
        saved, vectors = self._saved
        if self._frame_bytes:
            self.add("sp", self._frame_bytes)
        if vectors:
            self.vpop(vectors)
        if self.has_thumb2:
            self.pop((*saved[:-1], "pc"))
            return
        low, high = _low_and_high(saved)
        if high:
            self.pop(low[: len(high)])
        for through, register in zip(low, high, strict=False):
            self.mov(register, through)
        self.pop((*low, "pc"))

    def argument(self, name: str) -> str:
        """The register that holds an argument at the start. ValueError: it is on the stack."""
        number = self._names.index(name)
        if number >= len(_ARGUMENTS):
            raise ValueError(f"{name} is an argument on the stack: use stack_argument")
        return _ARGUMENTS[number]

    def stack_argument(self, name: str) -> Slot:
        """Where an argument lies that came on the stack, after ``enter``."""
        number = self._names.index(name) - len(_ARGUMENTS)
        if number < 0:
            raise ValueError(f"{name} is an argument in a register: use argument")
        return Slot(self._frame_bytes + self._saved_bytes + _WORD * number)

    def constant(self, register: str, value: int) -> None:
        """Set a register to a constant of up to 32 bits. MOVW takes 16, and MOVT the upper ones."""
        if 0 <= value <= _HALF:
            self.mov(register, value)
            return
        self.movw(register, value & _HALF)
        self.movt(register, value >> 16 & _HALF)

    def copy_arguments(self, register: str, frame: type[StackFrame], *names: str) -> None:
        """Copy arguments on the stack, through a register, to the slots with their names."""
        for name in names:
            self.ldr(register, self.stack_argument(name))
            self.str(register, getattr(frame, name))

    # The result.

    @property
    def code(self) -> list[Instruction]:
        """The instructions so far, without labels."""
        return [one for one in self._items if isinstance(one, Instruction)]

    @property
    def lines(self) -> list[str]:
        """The routine as text; labels are numbers, counted from its start."""
        positions = {one: at for at, one in enumerate(self._items) if isinstance(one, Label)}
        numbers = {label: number for number, label in enumerate(positions, 1)}
        found = []
        for at, one in enumerate(self._items):
            if isinstance(one, Label):
                found.append(f"{numbers[one]}:")
            elif isinstance(one, str):
                found.append(one)
            elif at in self._targets:
                label = self._targets[at]
                if label not in positions:
                    raise ValueError(f"{one.text.strip()} goes to a label that has no place")
                way = "b" if positions[label] < at else "f"
                found.append(f"{one.text}{numbers[label]}{way}")
            else:
                found.append(one.text)
        return found

    def c_function(self, name: str, portable: str, condition: str, attribute: str = "") -> str:
        """The static C function ``name``; ``portable`` is its body where there is no assembly.

        That C function has ``attribute``. What is only weighed has the strings of its code alone.
        """
        if not is_ordered():
            return "\n".join([name, portable, *(f'"{line}\\n"' for line in self.lines)])
        return naked_function(name, self.parameters, self.lines, portable, condition, attribute)


def _low_and_high(saved: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The registers that PUSH of Armv6-M can name, and the others; without lr."""
    listed = registers_of(saved[:-1])
    low = tuple(one for one in listed if int(one[1:]) <= _LAST_LOW)
    high = tuple(one for one in listed if one not in low)
    if len(high) > len(low):
        raise ValueError(f"{', '.join(high)} need as many registers below r8 to be saved through")
    return low, high
