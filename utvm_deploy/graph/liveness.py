"""Which activations are needed at once, and which of them are parts of another one."""

from __future__ import annotations

from itertools import accumulate

from utvm_deploy.graph.attributes import FullyConnected
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import consumers


def joined_parts(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Output of each layer that a pass joined of several -> the tensors of the file in it.

    They are in their order there, and no other operator reads the output.
    """
    read = consumers(graph)
    found: dict[int, tuple[int, ...]] = {}
    for operator in graph.operators:
        output = operator.outputs[0]
        if not isinstance(operator.attributes, FullyConnected):
            continue
        if graph.tensors[output].source is not None or output in graph.outputs:
            continue
        readers = [graph.operators[position] for position in read.get(output, ())]
        parts = tuple(reader.outputs[0] for reader in readers)
        is_file = all(graph.tensors[part].source is not None for part in parts)
        if parts and is_file and all(reader.kind == "SPLIT" for reader in readers):
            found[output] = parts
    return found


def live_bytes(graph: Graph) -> list[int]:
    """For each operator, the bytes of all activations made by then and still needed.

    Parts of a joined layer are needed as long as any of them is, and take no other bytes.
    """
    whole = {part: one for one, parts in joined_parts(graph).items() for part in parts}
    first = dict.fromkeys(graph.inputs, 0)
    last = dict.fromkeys(graph.inputs, 0)
    for position, operator in enumerate(graph.operators):
        for number in operator.outputs:
            if number not in whole:
                first[number] = last[number] = position
        for number in (i for i in operator.inputs if i is not None):
            place = whole.get(number, number)
            if place in first:
                last[place] = position
    for number in graph.outputs:
        last[whole.get(number, number)] = len(graph.operators) - 1
    changes = [0] * (len(graph.operators) + 1)
    for number, position in first.items():
        changes[position] += graph.tensors[number].size_bytes
        changes[last[number] + 1] -= graph.tensors[number].size_bytes
    return list(accumulate(changes[:-1]))
