"""TFLite Micro's signal operators in NumPy: what their outputs are compared with.

LiteRT does not have these operators. ``tests/oracle`` compares these formulas with TFLite Micro.
"""
