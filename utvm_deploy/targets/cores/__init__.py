"""Facts about processor cores as data; nothing here depends on a board."""
