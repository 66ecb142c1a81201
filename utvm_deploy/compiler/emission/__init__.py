"""A program becomes C sources."""
