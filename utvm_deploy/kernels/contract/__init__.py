"""What every kernel rests on: the call, the window, the rounding rules, operands, C texts."""
