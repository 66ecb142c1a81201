"""What differs between architectures: a folder for each, and the emulator."""
