"""Instructions as data, their order on a core, and the routines that they make."""
