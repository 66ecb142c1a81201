"""The table of layers and the choice of a mixed model, as ``utvm quantize --json`` prints them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from utvm_deploy.quality.precision.facts import LayerSensitivity, Mixed


def layers_json(rows: tuple[LayerSensitivity, ...]) -> list[dict[str, Any]]:
    """The table for --json."""
    return [asdict(row) for row in rows]


def mixed_json(mixed: Mixed, max_loss: float) -> dict[str, Any]:
    """The choice for --json."""

    def price(one: Any) -> Any:
        return None if one is None else {k: v for k, v in asdict(one).items() if k != "layers"}

    return {
        "wide": list(mixed.wide),
        "narrow": list(mixed.narrow),
        "loss": mixed.loss,
        "loss_unit": mixed.loss_unit,
        "max_loss": max_loss,
        "is_within": mixed.is_within,
        "losses": dict(mixed.losses),
        "price": price(mixed.price),
        "dearer": price(mixed.dearer),
        "prices": {scheme: price(one) for scheme, one in mixed.prices.items()},
    }
