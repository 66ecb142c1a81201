"""x86 with 32 bits as a target."""
