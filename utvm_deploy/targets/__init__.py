"""What differs between architectures: cores, timing tables, the emulator."""
