"""Arm Ethos-U: Vela compiles for it, and what Vela made is decoded and checked here.

docs/guides/ethos-u.md says how it is used, and what was never run.
"""
