"""Where bytes are: lifetimes, views, offsets in the arena, tables of constants."""
