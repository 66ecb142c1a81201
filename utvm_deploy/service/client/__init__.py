"""Speaks to a server that ``utvm serve`` started."""
