"""The Cortex-M cores, and what Arm alone says of them."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core

_DWT = ("dwt", "systick")

CORES = (
    Core(
        name="cortex-m0",
        architecture="armv6-m",
        timers=("systick",),
        needs_aligned_words=True,
    ),
    Core(
        name="cortex-m0plus",
        architecture="armv6-m",
        timers=("systick",),
        needs_aligned_words=True,
    ),
    Core(
        name="cortex-m3",
        architecture="armv7-m",
        timers=_DWT,
    ),
    Core(
        name="cortex-m4",
        architecture="armv7e-m",
        timers=_DWT,
        fpus=("single",),
        dsp=True,
    ),
    Core(
        name="cortex-m7",
        architecture="armv7e-m",
        timers=_DWT,
        fpus=("single", "double"),
        dsp=True,
        cache_line_bytes=32,
    ),
    Core(
        name="cortex-m33",
        architecture="armv8-m.main",
        timers=_DWT,
        has_any_windows=True,
        fpus=("single",),
        dsp=True,
        as_without_dsp="cortex-m3",
    ),
    Core(
        name="cortex-m55",
        architecture="armv8.1-m.main",
        timers=_DWT,
        has_any_windows=True,
        fpus=("double",),
        dsp=True,
        mve=True,
        cache_line_bytes=32,
        as_without_dsp="cortex-m3",
        as_without_mve="cortex-m33",
    ),
)


def has_thumb2(core: str) -> bool:
    """Whether it has the instructions of Thumb-2."""
    return next(one.architecture for one in CORES if one.name == core) != "armv6-m"
