"""The Cortex-M cores."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core

_ARM = "arm-none-eabi-gcc"

CORES = (
    Core(
        name="cortex-m0",
        architecture="armv6-m",
        compiler=_ARM,
        gcc_cpu="cortex-m0",
        has_dwt=False,
    ),
    Core(
        name="cortex-m0plus",
        architecture="armv6-m",
        compiler=_ARM,
        gcc_cpu="cortex-m0plus",
        has_dwt=False,
    ),
    Core(
        name="cortex-m3",
        architecture="armv7-m",
        compiler=_ARM,
        gcc_cpu="cortex-m3",
    ),
    Core(
        name="cortex-m4",
        architecture="armv7e-m",
        compiler=_ARM,
        gcc_cpu="cortex-m4",
        fpus={"single": "fpv4-sp-d16"},
        dsp=True,
    ),
    Core(
        name="cortex-m7",
        architecture="armv7e-m",
        compiler=_ARM,
        gcc_cpu="cortex-m7",
        fpus={"single": "fpv5-sp-d16", "double": "fpv5-d16"},
        dsp=True,
        cache_line_bytes=32,
    ),
    Core(
        name="cortex-m33",
        architecture="armv8-m.main",
        compiler=_ARM,
        gcc_cpu="cortex-m33",
        fpus={"single": "fpv5-sp-d16"},
        dsp=True,
        gcc_without_dsp="+nodsp",
        as_without_dsp="cortex-m3",
    ),
    Core(
        name="cortex-m55",
        architecture="armv8.1-m.main",
        compiler=_ARM,
        gcc_cpu="cortex-m55",
        gcc_without_mve="+nomve",
        fpus={"double": "auto"},
        dsp=True,
        mve=True,
        cache_line_bytes=32,
        gcc_without_dsp="+nodsp",
        as_without_dsp="cortex-m3",
        as_without_mve="cortex-m33",
    ),
)
