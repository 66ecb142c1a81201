"""Random models: generated from seeds, compared with the oracle, reduced when they fail.

    generator ──Recipe──▶ recipe.write ──ModelWriter──▶ .tflite ──▶ runner ──Outcome──▶ coverage
        ▲                                                              │
    operations: one generator per TFLite operator              minimizer, when wrong

``python -m tests.random_models`` runs many; docs/contributing/random-models.md says how.
"""
