"""Which layers need int16 activations: what quantizing each costs in accuracy, time and memory.

sensitivity.layer_sensitivities ──▶ the loss of each layer alone, in int8 and in int16x8
prices.measure                  ──▶ what each layer takes on the board, in both
mixing.mix                      ──▶ the cheapest choice for each layer that keeps the loss small
"""
