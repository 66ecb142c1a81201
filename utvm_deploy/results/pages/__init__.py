"""HTML pages that need nothing outside: one style, and tables, bars and curves for all of them."""
