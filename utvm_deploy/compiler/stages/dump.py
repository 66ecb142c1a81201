"""What each stage of the pipeline made, as text for people."""

from __future__ import annotations

from utvm_deploy.compiler.arena.plan import ArenaPlan, Step, View
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.lowering.program import ScheduledStep
from utvm_deploy.compiler.picks import Picks
from utvm_deploy.graph.model import Graph, Tensor
from utvm_deploy.kernels.contract.call import Argument, ConstantArgument, ScalarArgument


def graph_text(graph: Graph) -> str:
    """One line for each operator."""
    lines = [f"graph {graph.name}, sha256 {graph.digest}"]
    lines += [f"input {_tensor(graph, i)}" for i in graph.inputs]
    for position, operator in enumerate(graph.operators):
        made = ", ".join(_tensor(graph, i) for i in operator.outputs)
        read = ", ".join("none" if i is None else _tensor(graph, i) for i in operator.inputs)
        lines.append(f"{position}: {made} = {operator.kind}({read}) {operator.attributes}")
    lines += [f"output {_tensor(graph, i)}" for i in graph.outputs]
    return "\n".join(lines) + "\n"


def picks_text(picks: Picks) -> str:
    """One line for each kernel: its candidate, and what said so."""
    return "".join(
        f"{key}: {'the best of the core' if p.candidate is None else p.candidate.label}"
        f" ({p.origin})\n"
        for key, p in picks.items()
    )


def calls_text(graph: Graph, sequence: tuple[Step | View, ...]) -> str:
    """One line for each layer: kernel and arguments."""
    lines = []
    for item in sequence:
        if isinstance(item, View):
            result, source = _tensor(graph, item.result), _tensor(graph, item.source)
            offset = f" at byte {item.offset}" if item.offset else ""
            lines.append(f"view: {result} = {source}{offset}")
        else:
            arguments = ", ".join(_argument(graph, a) for a in item.call.arguments)
            lines.append(f"{item.operator.kind}: {item.call.kernel.name}({arguments})")
    return "\n".join(lines) + "\n"


def kernels_text(layers: tuple[ScheduledStep, ...]) -> str:
    """Each kernel's choice of schedule and its TensorIR."""
    kernels = {layer.kernel.function.name: layer.kernel for layer in layers}
    return "\n".join(f"# {name}: {kernel.why}\n{kernel.ir}" for name, kernel in kernels.items())


def plan_text(plan: ArenaPlan) -> str:
    """One line for each block, by offset."""
    lines = [f"{plan.arena_bytes} bytes, at most {plan.live_bytes} alive at once"]
    placed = sorted(zip(plan.placement.offsets, plan.blocks, strict=True), key=lambda p: p[0])
    lines += [
        f"{offset:8} .. {offset + block.size_bytes:8}  steps {block.first:3} .. {block.last:3}  "
        f"{block.name}"
        for offset, block in placed
    ]
    return "\n".join(lines) + "\n"


def sources_text(model: CompiledModel) -> str:
    """All files but the weights, which nobody reads."""
    files = {k: v for k, v in model.sources.items() if not k.endswith("_weights.c")}
    return "\n".join(f"// ---- {name}\n{text}" for name, text in files.items())


def _tensor(graph: Graph, number: int) -> str:
    tensor: Tensor = graph.tensors[number]
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"%{number} '{tensor.name}' {tensor.dtype} {shape}"


def _argument(graph: Graph, argument: Argument) -> str:
    if isinstance(argument, ScalarArgument):
        return f"{argument.name}={argument.value}"
    if isinstance(argument, ConstantArgument):
        return f"{argument.name}={argument.data.dtype}{list(argument.data.shape)}"
    return f"%{argument.tensor}"
