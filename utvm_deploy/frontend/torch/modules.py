"""What is done to an ``nn.Module`` before PyTorch exports it, and PyTorch's own messages.

PyTorch's exporter logs a traceback for inputs that do not fit, and an error that names neither the
inputs nor a way out. So the module is called once before.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from utvm_deploy.base.errors import ModelError

#: Packages whose loggers are held back.
_PACKAGES = ("torch", "torchao")
#: PyTorch's own variable: its value names the messages that somebody wants.
_WANTED = "TORCH_LOGS"


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Hold back warnings, and what PyTorch and torchao log, unless TORCH_LOGS is set.

    torchao, for example, logs each of its CUDA libraries that a processor cannot load.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
        if os.environ.get(_WANTED):
            yield
            return
        # A logger's filter does not see the records of the loggers below it; its handlers do.
        filtered: list[logging.Filterer] = []
        known = [name for name in logging.root.manager.loggerDict if "." in name]
        for name in (*_PACKAGES, *known):
            if name.partition(".")[0] in _PACKAGES:
                logger = logging.getLogger(name)
                filtered += [logger, *logger.handlers]
        for one in filtered:
            one.addFilter(_nothing)
        try:
            yield
        finally:
            for one in filtered:
                one.removeFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def check_module(
    torch: Any,
    module: Any,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any] | None = None,
    *,
    hint: str = "",
) -> None:
    """Raise ModelError for weights that are not float32, and for inputs that a module refuses.

    ``arguments`` and ``named`` are tensors for one call of the module. ``hint`` says what to do.
    """
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and weight.dtype != torch.float32:
            raise ModelError(
                f"the module's '{name}' is {_name(weight)}; call module.float(), and give inputs "
                "of float32"
            )
    buffers = [(one, one.detach().clone()) for one in module.buffers()]
    try:
        with torch.no_grad():
            module(*arguments, **(named or {}))
            for buffer, before in buffers:  # a module may write into them
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
    except Exception as exc:  # of many classes: it is the user's code
        given = [*map(_told, arguments)]
        given += [f"{name}={_told(one)}" for name, one in (named or {}).items()]
        reason = " ".join(str(exc).split())[:200].rstrip(".")
        raise ModelError(
            f"the module cannot be called with {', '.join(given) or 'no inputs'}: {reason}; "
            + (hint or "give inputs of the shapes and types that its forward takes")
        ) from exc


def export_error(exc: Exception) -> str:
    """Why PyTorch could not export a module, in words that say what to do where that is known."""
    told = " ".join(str(exc).split())
    if "data-dependent" in told:
        return (
            "what it computes next depends on the values of a tensor, as in 'if x.sum() > 0'; use "
            "torch.where, or a fixed number of steps"
        )
    return told[:300]


def _told(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{_name(value)} {tuple(value.shape)}"


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
