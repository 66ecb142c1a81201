"""The last steps of a file that was converted from another format's quantized model."""

from __future__ import annotations

from utvm_deploy.quantizing import tflite_schema as schema
from utvm_deploy.quantizing.facts import Recipe
from utvm_deploy.quantizing.tflite_clean import clean
from utvm_deploy.quantizing.tflite_ends import remove_float_ends
from utvm_deploy.quantizing.tflite_rewrite import Rewriting


def finished(data: bytes, recipe: Recipe) -> tuple[bytes, list[tuple[str, str]]]:
    """The .tflite file with float operators between two quantized tensors as integer ones.

    Also the kind and the first output of each of these.
    """
    model = schema.read_model(data)
    # The source's names of operators and tensors are lost: only its scheme counts here.
    rewriting = Rewriting(model, recipe.scheme, {}, Recipe(recipe.scheme))
    if not recipe.operators:
        rewriting.run()
    if not recipe.float_ends:
        remove_float_ends(model)
    clean(model)
    return schema.model_bytes(model), rewriting.rewritten
