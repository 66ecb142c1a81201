"""Which layers need int16 activations, and which can have weights of int4.

sensitivity.layer_sensitivities ──▶ the loss of each layer alone, in each scheme
prices.measure                  ──▶ what each layer takes on the board, in each
mixing.mix                      ──▶ the cheapest choice for each layer that keeps the loss small
narrowing.narrowed              ──▶ the same with weights of int4 where that pays
"""
