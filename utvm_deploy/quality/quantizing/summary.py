"""A quantized model as the object that ``utvm quantize --json`` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from utvm_deploy.quality.quantizing.facts import QuantizedModel


def quantized_summary(made: QuantizedModel) -> dict[str, Any]:
    """Without the table of layers, which ``precision`` makes."""
    return {
        "scheme": made.scheme,
        "samples": made.calibration.samples,
        "compared_samples": made.compared_samples,
        "bytes": len(made.data),
        "float_bytes": made.float_bytes,
        "float_operators": [asdict(one) for one in made.float_operators],
        "rewritten": list(made.rewritten),
        "outputs": [asdict(one) for one in made.outputs],
        "warnings": list(made.warnings),
        "equalizing": made.equalizing,
        "clipping": made.clipping,
        "clippings": dict(made.clippings),
    }
