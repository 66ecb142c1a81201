"""How far outputs are from those of the runtime that a converted model came from."""

from __future__ import annotations

import numpy as np

from utvm_deploy.oracle.origin import gaps


def test_infinities_and_nan_are_compared_without_a_warning() -> None:
    ours = np.array([np.inf, np.nan, 1.0, np.inf, np.nan, 2.0], np.float32)
    theirs = np.array([np.inf, np.nan, 1.5, -np.inf, 0.0, 2.0], np.float32)
    assert gaps(ours, theirs).tolist() == [0.0, 0.0, 0.5, np.inf, np.inf, 0.0]
