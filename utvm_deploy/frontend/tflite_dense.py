"""A .tflite file whose main subgraph stores the zeros of its constants."""

from __future__ import annotations

import functools
from dataclasses import replace

from utvm_deploy.frontend.files.variables import ONCE
from utvm_deploy.frontend.flat_model import FlatModel, FlatOperator, FlatTensor
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.tflite_flat import with_main
from utvm_deploy.frontend.tflite_tables import read_file, sparse_tensors


@functools.lru_cache(maxsize=2)
def densified(data: bytes) -> bytes:
    """The file with all zeros of its constants, and without the DENSIFY that would add them.

    A Relax model stays as it is. Raises ModelError for a damaged file.
    """
    if is_relax(data) or not (sparse := sparse_tensors(data)):
        return data
    main = read_file(data)
    dense = {number: main.tensors[number].data for number in sparse}
    kept = []
    for op in main.operators:
        if op.kind == "DENSIFY" and op.inputs[0] in dense:
            dense[op.outputs[0]] = dense[op.inputs[0]]
        else:
            place = (0, op.index)
            kept.append(FlatOperator(op.kind, op.inputs, op.outputs, op.intermediates, place))
    tensors = [
        FlatTensor(replace(one, data=dense.get(n)), (0, n), is_unchanged=n not in dense)
        for n, one in enumerate(main.tensors)
    ]
    flat = FlatModel(tensors, kept, main.inputs, main.outputs)
    once = {op.index: op.integer("InitSubgraphIndex") for op in main.operators if op.kind == ONCE}
    return with_main(data, flat.finished(main.outputs), once)
