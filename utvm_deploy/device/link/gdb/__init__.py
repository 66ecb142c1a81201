"""The four primitives through a debugger's GDB server."""
