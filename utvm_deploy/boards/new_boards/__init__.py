"""New board files: from one of the same chip, from what is said, or from what others describe.

write         a board file, and the chip as a user says it
description   facts with their sources, and the file that follows from them
pack          CMSIS device packs
pyocd         pyOCD's built-in targets
zephyr        the boards of the user's Zephyr tree
"""
