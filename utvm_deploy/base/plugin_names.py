"""The plug-ins that installed packages offer, by their names; none of their code is loaded."""

from __future__ import annotations

from importlib.metadata import entry_points

#: The group of entry points in which packages offer backends.
GROUP = "utvm_deploy.backends"


def installed_plugins() -> tuple[str, ...]:
    """The names, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))
