"""RISC-V: 32-bit microcontrollers."""
