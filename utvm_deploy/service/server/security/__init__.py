"""Tokens, logins, and limits of what a request may ask."""
