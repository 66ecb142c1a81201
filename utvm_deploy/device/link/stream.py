"""Byte streams to a device: pipes of a child process, serial ports, sockets.

A stream moves bytes and knows no frames. Every failure is a LinkError. Only this module imports
pyserial.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Protocol

from utvm_deploy.base.errors import LinkClosed, LinkTimeout, NoDevice
from utvm_deploy.device.link.holders import other_holders

# Default rate of serial ports, in bits per second; sockets and ptys have none.
DEFAULT_BAUD = 115200
#: What to do if the user may not open a port.
RIGHTS_ADVICE = "sudo usermod -aG dialout $USER, then log in again"
# poll(2) counts milliseconds in 31 bits; longer waits poll again.
_LONGEST_POLL_S = 86_400.0


class Stream(Protocol):
    """What MonitorLink needs of a way to the device."""

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        """What has arrived, as soon as there is any; empty if nothing came within ``timeout_s``.

        LinkClosed if nothing ever will.
        """

    def write(self, data: bytes, timeout_s: float) -> None:
        """Send all of ``data``; LinkTimeout if the other end did not take it in time."""

    def close(self) -> None:
        """Let go. May be called again."""


def _is_ready(fd: int, event: int, timeout_s: float) -> bool:
    """Whether ``fd`` can be read or written, or is at its end, within the time or a day."""
    poll = select.poll()  # select.select knows only the first 1024 descriptors
    poll.register(fd, event)
    return bool(poll.poll(math.ceil(min(max(timeout_s, 0), _LONGEST_POLL_S) * 1000)))


class PipeStream:
    """Two file descriptors, such as the pipes of a child process.

    It owns them: ``close`` closes both. A child process itself stays its starter's.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        name: str = "the device's process",
        advice: str = "see its last words, then start it again",
    ) -> None:
        self._advice = advice
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._name = name
        self._is_open = True
        for fd in {read_fd, write_fd}:
            os.set_blocking(fd, False)

    @classmethod
    def of_process(cls, process: subprocess.Popen[bytes]) -> PipeStream:
        """The standard input and output of a process that was started with pipes."""
        assert process.stdin is not None and process.stdout is not None
        # Separate descriptors: the process' file objects close theirs when they are collected.
        read_fd, write_fd = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        return cls(read_fd, write_fd, f"process {process.pid}")

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        self._check_open()
        try:
            if not _is_ready(self._read_fd, select.POLLIN, timeout_s):
                return b""
            data = os.read(self._read_fd, max_bytes)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise self._closed(error) from error
        if not data:
            raise self._closed()
        return data

    def write(self, data: bytes, timeout_s: float) -> None:
        self._check_open()
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        while left:
            try:
                if not _is_ready(self._write_fd, select.POLLOUT, deadline - time.monotonic()):
                    raise LinkTimeout(
                        f"{self._name} took {len(data) - len(left)} of {len(data)} bytes within "
                        f"{timeout_s:g} s; is it stopped? Reset the board."
                    )
                left = left[os.write(self._write_fd, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._closed(error) from error

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            for fd in {self._read_fd, self._write_fd}:
                os.close(fd)

    def _check_open(self) -> None:
        if not self._is_open:
            raise LinkClosed(f"the link to {self._name} was closed; connect again")

    def _closed(self, error: OSError | None = None) -> LinkClosed:
        why = f" ({error.strerror})" if error else ""
        return LinkClosed(f"{self._name} went away{why}; {self._advice}")


class NoStream:
    """A stream with nothing at the other end, as in a dry run."""

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        raise LinkClosed("nothing was started, so nothing answers")

    def write(self, data: bytes, timeout_s: float) -> None:
        raise LinkClosed("nothing was started, so nothing answers")

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SerialPort:
    """A serial port of a USB device, and what the device reports about itself."""

    path: str
    vendor: int
    product: int
    product_name: str
    serial: str  # empty: it has none


def serial_ports() -> list[SerialPort]:
    """The serial ports of all USB devices there are."""
    from serial.tools import list_ports

    return [
        SerialPort(one.device, one.vid, one.pid, one.product or "", one.serial_number or "")
        for one in list_ports.comports()
        if one.vid is not None and one.pid is not None
    ]


def _why_not(url: str, error: Exception) -> str:
    """Why a port cannot be opened, and what to do about it."""
    number = getattr(error, "errno", None)
    if number in (errno.EBUSY, errno.EAGAIN):
        holders = " and ".join(other_holders(url)) or "another program"
        return f"{holders} uses it; end that, then try again"
    if number in (errno.EACCES, errno.EPERM):
        return f"you may not; {RIGHTS_ADVICE}"
    return f"{error}; check the cable and the name"


def may_come(error: BaseException) -> bool:
    """Whether a port could not be opened because its device is still starting."""
    # No node, or one whose rights udev has not set, or whose driver is not there yet.
    passing = (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EIO)
    return getattr(error.__cause__, "errno", None) in passing


_CHECK_CABLE = "check the cable, then connect again"


#: The URLs that a port may be, besides a device's name; other schemes of pyserial open files.
PORT_SCHEMES = ["socket", "rfc2217"]


def check_port(port: str) -> None:
    """NoDevice if the port is a URL of a kind that leads to no board."""
    scheme, mark, _ = port.partition("://")
    if mark and scheme.lower() not in PORT_SCHEMES:
        schemes = " or ".join(f"{one}://" for one in PORT_SCHEMES)
        raise NoDevice(
            f"the port {port!r} is neither a device nor a {schemes} address; give a device's name, "
            "such as /dev/ttyACM0, or socket://host:port"
        )


class SerialStream:
    """What pyserial can open: a device name, a pty, ``socket://host:port``, ``rfc2217://...``."""

    def __init__(self, url: str, baud: int = DEFAULT_BAUD) -> None:
        import serial

        check_port(url)
        self._url = url
        self._foreign = (serial.SerialException, OSError)
        self._fds: PipeStream | None = None
        # Two hosts on one port would take each other's replies. URL handlers know no locks.
        options: dict[str, Any] = {} if "://" in url else {"exclusive": True}
        try:
            self._port = serial.serial_for_url(url, baudrate=baud, timeout=0, **options)
        except (*self._foreign, ValueError) as error:
            raise LinkClosed(f"cannot open {url}: {_why_not(url, error)}") from error
        # USB adapters of FTDI keep arriving bytes for 16 ms, unless this is changed.
        with contextlib.suppress(AttributeError, NotImplementedError, ValueError, OSError):
            self._port.set_low_latency_mode(True)
        # pyserial reads socket:// byte by byte, and a tty with three system calls a portion:
        # where the port is a file descriptor, use that.
        if os.name == "posix":
            try:
                fd = self._port.fileno()
            except (AttributeError, *self._foreign):
                return
            self._fds = PipeStream(os.dup(fd), os.dup(fd), url, _CHECK_CABLE)

    @property
    def url(self) -> str:
        """What was opened."""
        return self._url

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        if self._fds is not None:
            return self._fds.read(max_bytes, timeout_s)
        try:
            self._port.timeout = max(timeout_s, 0)
            data: bytes = self._port.read(1)
            if data:
                data += self._port.read(min(self._port.in_waiting, max_bytes - 1))
        except self._foreign as error:
            raise self._closed(error) from error
        return data

    def write(self, data: bytes, timeout_s: float) -> None:
        if self._fds is not None:
            self._fds.write(data, timeout_s)
            return
        import serial

        try:
            self._port.write_timeout = timeout_s
            self._port.write(data)
        except serial.SerialTimeoutException as error:
            raise LinkTimeout(
                f"{self._url} did not take {len(data)} bytes within {timeout_s:g} s; "
                "is flow control on?"
            ) from error
        except self._foreign as error:
            raise self._closed(error) from error

    def close(self) -> None:
        if self._fds is not None:
            self._fds.close()
        self._port.close()

    def _closed(self, error: Exception) -> LinkClosed:
        return LinkClosed(f"{self._url} went away ({error}); {_CHECK_CABLE}")
