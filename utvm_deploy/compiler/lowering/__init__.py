"""A kernel becomes a C function; a program has all of them."""
