"""Two links to one device: tasks over the runtime's line, much memory through a debugger.

A line moves some kilobytes in a second, and a debugger's server a thousand times as much. But the
core runs only while the debugger lets it. So the core is halted for a moment around each large
copy. The runtime, which waits for the next request, does not notice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from utvm_deploy.base.errors import LinkError, UtvmError
from utvm_deploy.device.link.base import Hello, Link, Region, Task
from utvm_deploy.device.link.deadlines import Speeds
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.replies import region_of

# For this many bytes or more, halting and resuming the core takes less time than the line.
BULK_BYTES = 512


class CombinedLink:
    """A ``link.base.Link``. ``close`` closes both.

    ``sync_code`` is the address of the runtime's function that makes written code visible to
    instruction fetch; None where writing is enough.
    """

    def __init__(
        self,
        line: Link,
        debugger: GdbClient,
        sync_code: int | None = None,
        speeds: Speeds | None = None,
    ) -> None:
        self._speeds = speeds or Speeds()
        self._line = line
        self._debugger = debugger
        self._sync_code = sync_code
        self._regions: tuple[Region, ...] | None = None

    def hello(self) -> Hello:
        """Begin a session; also with a server that was started again."""
        self._debugger.greet()
        self._debugger.resume()
        self._regions = None
        return self._line.hello()

    def regions(self) -> tuple[Region, ...]:
        """What the device lets be read, written and executed."""
        if self._regions is None:
            self._regions = self._line.regions()
        return self._regions

    def read(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes of the device's memory."""
        if size < BULK_BYTES:
            return self._line.read(address, size)
        self._region(address, size, "readable", f"to read {size} bytes at {address:#010x}")
        with self._halted():
            return self._debugger.read_memory(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Copy ``data`` to the device's memory."""
        if len(data) < BULK_BYTES:
            self._line.write(address, data)
            return
        what = f"to write {len(data)} bytes at {address:#010x}"
        region = self._region(address, len(data), "writable", what)
        with self._halted():
            self._debugger.write_memory(address, data)
        if region.executable and self._sync_code is not None:
            task_s = self._speeds.task_s(len(data))
            task = Task(self._sync_code, (address, len(data)), deadline_s=task_s)
            self._line.execute([task], self._speeds.host_s(task_s, line_bytes=64))

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order; the ticks of every repeat of every task."""
        return self._line.execute(tasks, timeout_s)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of ``size`` bytes of the device's memory, computed there."""
        return self._line.checksum(address, size)

    def reset(self) -> None:
        """Restart the device; what was in its RAM is lost."""
        self._line.reset()

    def close(self) -> None:
        """Let go of both. May be called again."""
        self._line.close()
        self._debugger.close()

    def _region(self, address: int, size: int, right: str, what: str) -> Region:
        return region_of(self.regions(), address, size, right, what)

    @contextlib.contextmanager
    def _halted(self) -> Iterator[None]:
        """The core is halted within the block, and runs after it, even after an exception."""
        self._debugger.interrupt()
        try:
            yield
        except LinkError:
            raise
        except UtvmError:
            self._debugger.resume()
            raise
        except BaseException:
            # Ctrl-C, perhaps between a packet and its answer: only a new dialogue is in step.
            with contextlib.suppress(UtvmError):
                self._debugger.greet()
                self._debugger.resume()
            raise
        self._debugger.resume()
