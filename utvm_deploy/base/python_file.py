"""Runs a Python file that the user named, such as a plug-in; what goes wrong is one sentence."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TypeVar

from utvm_deploy.base.errors import PluginError

_Made = TypeVar("_Made")


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
        return load()
    except PluginError:
        raise
    except (Exception, SystemExit) as error:  # anything may be wrong in somebody else's code
        raise PluginError(
            f"{where}: loading it raised {said_of(error)}; correct the plug-in"
        ) from error


class TookTooLong(BaseException):
    """Somebody else's function did not end in time; its text is the number of seconds."""


def within(seconds: float, work: Callable[[], _Made]) -> _Made:
    """What ``work`` gives, in a separate thread, because nothing else ends an endless loop.

    Raises what it raises, or TookTooLong. Then the thread gets this exception, too.
    """
    future: Future[_Made] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    if not wait([future], seconds).done:
        set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
        set_exception(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TookTooLong))
        raise TookTooLong(f"{seconds:g}")
    return future.result()


def said_of(error: BaseException) -> str:
    """An exception in one line: its type, its text, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
