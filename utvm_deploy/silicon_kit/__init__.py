"""For volunteers with a real board: measures models and sequences, and compares with the model.

run        the whole run, saved after each item
models     one model: outputs and layers compared, cycles measured and modelled
sequences  the micro-benchmarks (``cases``) as a module in RAM
report     the file that it writes, and its strict reader
"""
