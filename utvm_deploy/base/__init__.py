"""Small modules that everything rests on: errors, files, child processes, the cache, TOML."""
