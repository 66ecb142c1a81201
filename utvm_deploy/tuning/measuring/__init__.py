"""Building candidates, running them on devices, and comparing their outputs."""
