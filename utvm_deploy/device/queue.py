"""Lazy execution: calls wait here until somebody wants a result, then go out as one task list.

    call ─▶ queue ─▶ frame │ fill │ call │ call │ check │ ─▶ link ─▶ ticks, or which call failed

Equal calls in a row are sent as one task with repeats. Results are as if each call had run at once:
reading or changing memory that a queued call may use flushes the queue first. Tasks at the end of
each list check the red zones around all blocks that took part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from utvm_deploy.base.errors import (
    DeviceError,
    DeviceReset,
    LinkError,
    LinkTimeout,
    StoppedTask,
    UtvmError,
)
from utvm_deploy.device.calls import Call, Ticks
from utvm_deploy.device.link.base import Hello, Task
from utvm_deploy.device.link.deadlines import Speeds
from utvm_deploy.device.link.messages import MAX_ARGUMENTS, OUTCOME, TASK
from utvm_deploy.device.workspace_blocks import ZONE_BYTES, ZONE_PATTERN, Block

#: A queue this long is flushed: what it holds costs memory here and time to say what failed.
QUEUE_LIMIT = 1024
#: How many calls an error names.
NAMED_CALLS = 4

FILL_SYMBOL = "utvm_fill"
FILL_ZONES_SYMBOL = "utvm_fill_zones"
CHECK_SYMBOL = "utvm_check_zones"
#: A function of images with a cycle model: counts after it depend on nothing before it.
FORGET_SYMBOL = "utvm_forget_history"
_WORD_BYTES = 4
_TICKS_BYTES = 8
# Arguments of the check besides the zones: the address of its report, and the pattern.
_ZONES_PER_CHECK = MAX_ARGUMENTS - 2


class Executor(Protocol):
    """The part of a link that the queue uses."""

    def read(self, address: int, size: int) -> bytes: ...

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]: ...


class Queue:
    """The calls of one boot of the device that did not run yet.

    ``symbols`` are the image's; ``report`` gives the block that the check of the zones writes to.
    """

    def __init__(
        self,
        link: Executor,
        hello: Hello,
        symbols: Mapping[str, int],
        report: Callable[[], Block],
        speeds: Speeds | None = None,
    ) -> None:
        self.is_strict = False
        self._link = link
        self._hello = hello
        self._fill = symbols[FILL_SYMBOL]
        self._fill_zones = symbols[FILL_ZONES_SYMBOL]
        self._check = symbols[CHECK_SYMBOL]
        self._forget = symbols.get(FORGET_SYMBOL)
        self._report = report
        self._speeds = speeds or Speeds()
        # Calls in order; those that nobody asked for (fills) run with the next call.
        self._waiting: list[Call] = []
        self._asked = 0

    def __len__(self) -> int:
        """How many calls wait; those that the queue itself added do not count."""
        return self._asked

    def add(self, call: Call) -> Call:
        """Put a call at the end; it runs now if the queue is strict or full."""
        call.wait(self.flush)
        self._waiting.append(call)
        self._asked += 1
        if self.is_strict or self._asked >= QUEUE_LIMIT:
            self.flush()
        return call

    def add_zeros(self, block: Block, start: int) -> None:
        """Fill ``block`` with zeros from address ``start`` on before the next call runs."""
        size = block.address + block.size - start
        self._add_ours(self._task(self._fill, (start, size, 0), size), FILL_SYMBOL, block)

    def add_sync(self, block: Block, function: int) -> None:
        """Let the image's ``function`` make code in ``block`` visible before the next call runs."""
        task = self._task(function, (block.address, block.size), block.size)
        self._add_ours(task, "utvm_sync_code", block)

    def _task(self, function: int, args: tuple[int, ...], size: int) -> Task:
        """A task of the queue's own, which touches ``size`` bytes."""
        return Task(function, args, deadline_s=self._speeds.task_s(size))

    def _add_ours(self, task: Task, text: str, block: Block) -> None:
        self._waiting.append(Call(task, text, (block.what,), (block,), is_ours=True))

    def add_zones(self, block: Block) -> None:
        """Fill the red zones of the block before the next call runs."""
        args = (ZONE_PATTERN, *block.zones)
        task = self._task(self._fill_zones, args, ZONE_BYTES * len(block.zones))
        self._add_ours(task, FILL_ZONES_SYMBOL, block)

    def forget(self, block: Block) -> None:
        """Fill nothing more of a block that is about to be freed."""
        self._waiting = [
            call for call in self._waiting if not (call.is_ours and block in call.blocks)
        ]

    def drop(self, error: UtvmError) -> None:
        """Drop all waiting calls, because of ``error``."""
        calls, self._waiting, self._asked = self._waiting, [], 0
        for call in calls:
            call.fail(not_run(call, error))

    def flush(self) -> None:
        """Run everything that waits; raises what the first failing call met."""
        if not self._waiting:
            return
        calls, self._waiting, self._asked = self._waiting, [], 0
        blocks = list(dict.fromkeys(b for c in calls if not c.is_ours for b in c.blocks))
        report: Block | None = None
        try:
            if blocks:
                report = self._report()
            self._run([*calls, *(self._checks(blocks, report) if report is not None else ())])
            if report is not None:
                self._look_at(report, calls, blocks)
        except StoppedTask as error:
            # Counted as the caller does, who does not know our internal tasks.
            asked = [call for call in calls if not call.is_ours]
            error.index = next((i for i, c in enumerate(asked) if c.error is error), error.index)
            if report is not None:
                self._look_after_stop(error, report, calls, blocks)
            raise
        except UtvmError as error:
            _fail_all(calls, error)
            raise
        finally:
            # Only Ctrl-C and bugs leave calls behind that nobody has told.
            _fail_all(calls, DeviceError("the calls were interrupted"))
            # Our own tasks still have to run: other calls rely on them.
            self._waiting[:0] = [call for call in calls if not call.is_done]

    def _run(self, calls: Sequence[Call]) -> None:
        for frame in self._frames(calls):
            try:
                self._run_frame(frame)
            except UtvmError as error:
                _fail_all(calls, error)
                raise

    def _run_frame(self, frame: Sequence[_Run]) -> None:
        tasks = [run.task for run in frame]
        calls = [call for run in frame for call in run.calls]
        tasks_s = sum(task.deadline_s or self._speeds.task_s() for task in tasks)
        line_bytes = sum(map(_wire_bytes, tasks))
        line_bytes += _TICKS_BYTES * sum(task.repeat for task in tasks)
        timeout_s = self._speeds.host_s(tasks_s, line_bytes=line_bytes)
        try:
            times = self._link.execute(tasks, timeout_s)
        except StoppedTask as error:
            # A device whose memory was overwritten may name a task that does not exist.
            failed = frame[min(error.index, len(frame) - 1)].call_after(error.detail)
            error.task = failed.text
            for call in calls[: calls.index(failed)]:
                call.fail(_lost_ticks(call, failed))
            failed.fail(error)
            raise
        except (LinkError, DeviceReset) as error:
            named = _named(calls, error)
            for call in calls:
                call.fail(named)
            raise named from error
        except DeviceError as error:
            # The device refused the list and ran none of it: those before the culprit still may.
            index = min(error.index, len(frame) - 1)
            failed = frame[index].calls[0]
            refused = DeviceError(
                f"{failed.text}: {error}", status=error.status, index=index, detail=error.detail
            )
            failed.fail(refused)
            if error.status is not None and index:
                self._run_frame(frame[:index])
            raise refused from error
        hello = self._hello
        for run, ticks in zip(frame, times, strict=True):
            first = 0
            for call in run.calls:
                own = ticks[first : first + call.task.repeat]
                call.finish(Ticks(own, hello.tick_unit, hello.ticks_per_second))
                first += call.task.repeat

    def _frames(self, calls: Sequence[Call]) -> Iterator[list[_Run]]:
        """Parts that each fit one exchange, so that an error names the calls that ran."""
        request_room = self._hello.request_bytes
        reply_room = self._hello.reply_bytes - OUTCOME.size_bytes
        if self._forget is not None:
            # Each frame begins with it, so that no count depends on how the request came in.
            opening = Call(self._task(self._forget, (), 0), FORGET_SYMBOL, (), is_ours=True)
            request_room -= _wire_bytes(opening.task)
            reply_room -= _TICKS_BYTES
            for frame in self._parts(calls, request_room, reply_room):
                yield [_Run(opening), *frame]
        else:
            yield from self._parts(calls, request_room, reply_room)

    def _parts(
        self, calls: Sequence[Call], request_room: int, reply_room: int
    ) -> Iterator[list[_Run]]:
        frame: list[_Run] = []
        request = reply = 0
        for call in calls:
            asks, answers = _wire_bytes(call.task), _TICKS_BYTES * call.task.repeat
            has_room = reply + answers <= reply_room
            if frame and has_room and frame[-1].is_continued_by(call):
                frame[-1].add(call)
                reply += answers
                continue
            if frame and not (has_room and request + asks <= request_room):
                yield frame
                frame, request, reply = [], 0, 0
            frame.append(_Run(call))
            request, reply = request + asks, reply + answers
        if frame:
            yield frame

    # Red zones.

    def _checks(self, blocks: Sequence[Block], report: Block) -> list[Call]:
        """Tasks that report the first overwritten byte around ``blocks``."""
        zones = [zone for block in blocks for zone in block.zones]
        tasks = []
        for at in range(0, len(zones), _ZONES_PER_CHECK):
            some = zones[at : at + _ZONES_PER_CHECK]
            args = (report.address, ZONE_PATTERN, *some)
            tasks.append(self._task(self._check, args, ZONE_BYTES * len(some)))
        return [Call(task, CHECK_SYMBOL, (), is_ours=True) for task in tasks]

    def _broken(self, report: Block, blocks: Sequence[Block]) -> tuple[Block, str] | None:
        """The block whose red zone was overwritten, and where; its zones are restored."""
        broken = int.from_bytes(self._link.read(report.address, 4), "little")
        if not broken:
            return None
        for block in blocks:
            side = block.zone_at(broken)
            if side is not None:
                # Told once is enough.
                self.add_zeros(report, report.address)
                self.add_zones(block)
                return block, f"memory {side} {block.what} was overwritten, first at {broken:#010x}"
        raise DeviceError(
            f"the check of the red zones reports {broken:#010x}, where none is: something "
            f"overwrote the report; reset the device"
        )

    def _look_after_stop(
        self, error: StoppedTask, report: Block, calls: Sequence[Call], blocks: Sequence[Block]
    ) -> None:
        """Check the zones now: the next call is not blamed for what a stopped one overwrote."""
        # Zones whose filling waited behind the stopped call hold anything.
        unfilled = {b for call in calls if call.is_ours and not call.is_done for b in call.blocks}
        whole = [block for block in blocks if block not in unfilled]
        self._run(self._checks(whole, report))
        found = self._broken(report, whole)
        if found is not None:
            error.cause += f"; {found[1]}"

    def _look_at(self, report: Block, calls: Sequence[Call], blocks: Sequence[Block]) -> None:
        found = self._broken(report, blocks)
        if found is None:
            return
        block, what = found
        suspects = [call for call in calls if block in call.blocks and not call.is_ours]
        by = _listed(suspects)
        hint = "" if len(suspects) == 1 else "; set device.strict = True to see which"
        error = DeviceError(f"{what}, by {by}{hint}")
        if len(suspects) == 1:
            suspects[0].fail(error)
        raise error


class _Run:
    """Equal calls in a row: one task whose repeats are theirs."""

    def __init__(self, call: Call) -> None:
        self.task = call.task
        self.calls = [call]

    def is_continued_by(self, call: Call) -> bool:
        """Whether the call is equal to these, and so may be one more repeat."""
        one, other = self.task, call.task
        return one.function == other.function and one.args == other.args

    def add(self, call: Call) -> None:
        """One more."""
        repeat = self.task.repeat + call.task.repeat
        deadlines = (self.task.deadline_s, call.task.deadline_s)
        deadline_s = None if None in deadlines else sum(d for d in deadlines if d is not None)
        self.task = replace(self.task, repeat=repeat, deadline_s=deadline_s)
        self.calls.append(call)

    def call_after(self, ended: int) -> Call:
        """The call that ran when the task stopped after this number of repeats."""
        for call in self.calls:
            if ended < call.task.repeat:
                return call
            ended -= call.task.repeat
        return self.calls[-1]


def _wire_bytes(task: Task) -> int:
    return TASK.size_bytes + _WORD_BYTES * len(task.args)


def _fail_all(calls: Sequence[Call], reason: UtvmError) -> None:
    """Note of all calls that did not run yet that they never will."""
    for call in calls:
        if not call.is_done and not call.is_ours:
            call.fail(not_run(call, reason))


def not_run(call: Call, reason: UtvmError) -> DeviceError:
    """The error of a call that waited after one that failed."""
    if isinstance(reason, StoppedTask):
        return DeviceError(
            f"{call.text} did not run, because {reason.task} before it was stopped: {reason.cause}"
        )
    kind = DeviceReset if isinstance(reason, DeviceReset) else DeviceError
    return kind(f"{call.text} did not run, because of this before it: {reason}")


def _lost_ticks(call: Call, failed: Call) -> DeviceError:
    return DeviceError(
        f"{call.text} ran, but its ticks were lost when {failed.text} after it failed; "
        f"run it again, or set device.strict = True"
    )


def _named(calls: Sequence[Call], error: DeviceError | LinkError) -> UtvmError:
    """The error with the calls that were on their way; nobody can know which of them it was."""
    asked = [call for call in calls if not call.is_ours] or list(calls)
    while_what = f"while {_listed(asked)} ran: {error}"
    if isinstance(error, LinkTimeout) and len(asked) > 1:
        while_what += "; set device.strict = True to see which call it is"
    return type(error)(while_what)


def _listed(calls: Sequence[Call]) -> str:
    texts = [call.text for call in calls[:NAMED_CALLS]]
    more = len(calls) - len(texts)
    if more:
        texts.append(f"{more} more")
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"
