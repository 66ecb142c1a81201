"""What images for RISC-V are made from."""

from __future__ import annotations

from utvm_deploy.targets.contract.target import Drivers, Selftest, Templates

#: The drivers of ``templates/riscv/baremetal``.
DRIVERS = Drivers(
    # ``plic_base`` is the interrupt controller; ``rx_irq`` its number for the UART.
    uarts={"ns16550": ("base", "clock_hz", "plic_base", "rx_irq")},
    # Ticks are those of minstret or mcycle, at ``clock_hz``; deadlines are those of mtimecmp.
    timers={"clint": ("base", "clock_hz", "mtime_hz")},
    clocks={"none": ()},
)

TEMPLATES = Templates(
    folders={
        "baremetal": ("baremetal", "riscv/baremetal"),
        "zephyr": ("zephyr", "riscv/zephyr"),
        "esp-idf": ("esp_idf", "riscv/esp_idf"),
    },
    guard_of=lambda core: ("guard.c",),
    drivers=DRIVERS,
    zephyr_symbol="RISCV",
    zephyr_fpu=("CONFIG_FPU_SHARING=y",),
    selftest=Selftest(
        core="RISC-V core",
        folder="riscv",
        startup="riscv/bundle/startup.c.in",
        build="riscv",
        printing="semihosting, so a debugger or an emulator must",
        emulator_options=("-bios", "none", "-semihosting"),
        # picolibc brings what it needs.
        link_options=(),
    ),
)
