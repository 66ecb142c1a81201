"""What the process of a worker says to the process that started it."""

from __future__ import annotations

#: The scheduler does not answer yet; the text says more.
WAITING = "waiting"
#: The worker takes jobs now.
CONNECTED = "connected"
#: The connection to the scheduler ended, and with it the worker's process.
LOST = "lost"
#: The scheduler has another worker of that name.
NAME_TAKEN = "name taken"
#: The process ended without a word: it was killed, or failed.
DIED = "died"
#: The worker must not join, or could not; the text says why. Trying again does not help.
REFUSED = "refused"
