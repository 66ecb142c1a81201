"""Runs a Python file that the user named, such as a plug-in; what goes wrong is one sentence."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from utvm_deploy.base.errors import PluginError

_Made = TypeVar("_Made")

#: The most that a file takes to load; it may build a library.
LOAD_SECONDS = 600.0
#: The most characters of a value or of an exception's text that a message has.
_MOST_SHOWN = 200
_PACKAGE = str(Path(__file__).parents[1])


def is_file_name(text: str | Path) -> bool:
    """Whether a plug-in is named by its file: a path, or text that ends with .py or has a slash."""
    return isinstance(text, Path) or text.endswith(".py") or "/" in text


def module_of(path: Path, where: str) -> ModuleType:
    """The module that the file is, after it ran.

    Raises PluginError, beginning with ``where``, unless it is a Python file that runs.
    """

    def load() -> ModuleType:
        name = f"utvm_plugin_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise PluginError(f"{where} is not a Python file; give a file whose name ends with .py")
        module = importlib.util.module_from_spec(spec)
        # As Python has it for a script: the plug-in may import what lies next to it.
        sys.path.insert(0, str(path.resolve().parent))
        sys.modules[name] = module  # where dataclasses look for the types of fields
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.resolve().parent))
        return module

    return loaded(load, where)


def loaded(load: Callable[[], _Made], where: str) -> _Made:
    """What ``load`` gives; PluginError, beginning with ``where``, if it raises an exception."""
    try:
        return within(LOAD_SECONDS, load)
    except (PluginError, KeyboardInterrupt):
        raise
    except TookTooLong as error:
        raise PluginError(
            f"{where}: loading it took more than {error} seconds; correct the plug-in"
        ) from None
    except BaseException as error:  # anything may be wrong in somebody else's code
        raise PluginError(
            f"{where}: loading it raised {said_of(error)}; correct the plug-in"
        ) from error


class TookTooLong(BaseException):
    """Somebody else's function did not end in time; its text is the number of seconds."""


class _Contained:
    """While somebody else's code runs, what it prints goes to stderr: stdout may be a JSON text.

    ``os._exit`` raises SystemExit. Several threads may be in it.
    """

    def __init__(self) -> None:
        self._lock, self._running = Lock(), 0
        self._kept: tuple[Any, Any] = (None, None)

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                self._kept = sys.stdout, os._exit
                sys.stdout = sys.stderr
                os._exit = _leaving(os._exit, os.getpid())  # type: ignore[assignment]
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                sys.stdout, os._exit = self._kept


def _leaving(really: Callable[[int], NoReturn], own: int) -> Callable[[int], NoReturn]:
    def leave(status: int) -> NoReturn:
        if os.getpid() != own:
            really(status)  # a child process of the plug-in
        raise SystemExit(status)

    return leave


_contained = _Contained()


def within(seconds: float, work: Callable[[], _Made]) -> _Made:
    """What ``work`` gives, in a separate thread, because nothing else ends an endless loop.

    Raises what it raises, or TookTooLong. Then the thread gets this exception, too. What the work
    prints goes to stderr.
    """
    future: Future[_Made] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    thread = Thread(target=run, daemon=True)
    with _contained:
        thread.start()
        is_done = bool(wait([future], seconds).done)
    if not is_done:
        set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
        set_exception(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TookTooLong))
        raise TookTooLong(f"{seconds:g}")
    return future.result()


def said_of(error: BaseException) -> str:
    """An exception in one line: its type, its text, and the line of code that raised it.

    That is a line of somebody else's, if one led to it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not one.filename.startswith((_PACKAGE, "<"))]
    at = [(one.lineno, one.filename) for one in (theirs or frames)[-1:]]
    text = shown(error, str)
    if isinstance(error, SyntaxError) and error.filename:
        at, text = [(error.lineno, error.filename)], error.msg
    place = "".join(f" (line {line} of {file})" for line, file in at)
    text = " ".join(text.split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def shown(value: object, text_of: Callable[[object], str] = repr) -> str:
    """A value of somebody else's in a message, shortened."""
    try:
        text = text_of(value)
    except Exception:  # their own __repr__ or __str__
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
