"""The boards with a chip that nothing here emulates: tests/boards/test_chips.py builds for them."""

#: Board -> where its vectors are: behind what the boot ROM reads first, if there is such.
VECTORS = {
    "nucleo_h743zi": 0x0800_0000,
    "nrf52840dk": 0x0000_0000,
    "rpi_pico": 0x1000_0100,
    "rpi_pico2": 0x1000_0000,
    "mimxrt1060_evk": 0x6000_2000,
    "nucleo_l4r5zi": 0x0800_0000,
    "nucleo_u575zi_q": 0x0800_0000,
    "nrf5340dk": 0x0000_0000,
}
