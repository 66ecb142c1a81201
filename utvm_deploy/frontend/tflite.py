"""Imports a .tflite file, or a format that becomes one, as a graph.

bytes ──read_file──▶ tensors, SourceOperators ──IMPORTERS──▶ Graph ──check_graph──▶ Graph
"""

from __future__ import annotations

import functools
import hashlib
import logging
from dataclasses import replace
from pathlib import Path

from utvm_deploy.base.errors import ModelError, refused_with
from utvm_deploy.frontend.assemble import CustomImporter, assemble
from utvm_deploy.frontend.control_flow import unrolled
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.files.odd_weights import warn_of_weights
from utvm_deploy.frontend.files.variables import ONCE
from utvm_deploy.frontend.formats import IDENTIFIER, choice_notes, converted, model_bytes
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.frontend.relax.road import relax_graph
from utvm_deploy.frontend.survey import Survey, survey
from utvm_deploy.frontend.tflite_dense import densified
from utvm_deploy.frontend.tflite_flat import with_main
from utvm_deploy.frontend.tflite_tables import called_subgraphs, metadata_of, read_file
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph, Prefill
from utvm_deploy.graph.names import with_short_names
from utvm_deploy.graph.stream import METADATA, StreamFacts

_log = logging.getLogger(__name__)


def load_model(
    path: str | Path, custom: CustomImporter | None = None, *, is_quiet: bool = False
) -> Graph:
    """Import a fully integer int8 model, a .tflite or a format that becomes one, and check it.

    Unless ``is_quiet``, weights that are not finite are logged.

    Raises ModelError for a file that cannot be used. Raises UnsupportedOperator for operators that
    cannot be imported, and names all of them.
    """
    path = Path(path)
    data = tflite_bytes(path)
    if is_relax(data):
        model = loaded(data)
        for note in model.notes:
            _log.warning("%s: %s", path, note)
        graph = relax_graph(model, path.stem)
    else:
        graph = load_bytes(data, path.stem, str(path), custom)
    # Of the user's file, also where it becomes another one.
    digest = hashlib.sha256(model_bytes(path)).hexdigest()
    graph = graph.replaced(digest=digest, number_format=chosen_now().number_format)
    if not is_quiet:
        for note in choice_notes(path):
            _log.warning("%s: %s", path, note)
        warn_of_weights(graph, str(path))
    return graph


def load_bytes(
    data: bytes, name: str, path: str | None = None, custom: CustomImporter | None = None
) -> Graph:
    """The graph of a .tflite file's bytes; ``path`` is what messages call it, if not its name.

    Raises as ``load_model`` does.
    """
    path = path or name
    names: list[str] = []
    try:
        source = read_file(data)
        told = metadata_of(data, Prefill.METADATA)
        if told is not None:
            source = replace(source, prefill=Prefill.of_json(told, len(source.inputs)))
        names += (tensor.name for tensor in source.tensors)
        graph = assemble(source, name, hashlib.sha256(data).hexdigest(), custom)
        check_graph(graph)
        facts = metadata_of(data, METADATA)
        if facts is not None:
            graph = graph.replaced(stream=StreamFacts.of_json(facts))
    except ModelError as exc:
        raise type(exc)(f"{path}: {with_short_names(str(exc), names)}") from exc
    if any(
        operator.kind == "CONV_2D"
        and operator.inputs[2] is None
        and graph.tensors[operator.outputs[0]].dtype != "float32"
        for operator in graph.operators
    ):
        _log.warning(
            "%s: LiteRT refuses a CONV_2D of integers without a bias, so there is no reference to "
            "verify with; convert the model with a bias of 0",
            path,
        )
    _log.info("imported %s: %d operators", path, len(graph.operators))
    return graph


def survey_model(path: str | Path, refusal: ModelError) -> Survey:
    """All operators of a file that ``load_model`` has refused, and what is wrong with each.

    Raises the refusal itself where the file cannot be read as far as its operators.
    """
    path = Path(path)
    faults: dict[int, str] = {}
    try:
        source = read_file(_surveyed_bytes(path), faults)
        return survey(source, faults, str(refusal).removeprefix(f"{path}: "))
    except ModelError:
        raise refusal from None


def tflite_bytes(path: Path) -> bytes:
    """What LiteRT, or TVM for a Relax model, runs layer by layer: the model without control flow.

    What it costs to unroll loops is logged. Raises ModelError for a file that cannot be used.
    """
    data = given_bytes(path)
    if is_relax(data):
        return data
    with refused_with(path):
        made, notes = _unrolled(data)
    for note in notes:
        _log.warning("%s: %s", path, note)
    return made


def given_bytes(path: Path) -> bytes:
    """The .tflite file or the Relax model that a file is, or becomes; it may have control flow.

    Constants of its main subgraph that are stored without zeros have them.
    """
    data = converted(path) or _file_bytes(path)
    with refused_with(path):
        return densified(data)


def _surveyed_bytes(path: Path) -> bytes:
    """The file as it is given, where its control flow is why it was refused."""
    try:
        return tflite_bytes(path)
    except ModelError:
        return given_bytes(path)


@functools.lru_cache(maxsize=2)
def _unrolled(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The file without control flow, and what is said of its loops; the file itself without any."""
    subgraphs = called_subgraphs(data)
    if len(subgraphs) < 2:
        return data, ()
    made = unrolled(subgraphs)
    once = {
        op.index: op.integer("InitSubgraphIndex")
        for op in subgraphs[0].operators
        if op.kind == ONCE
    }
    return densified(with_main(data, made.model, once)), made.notes


def _file_bytes(path: Path) -> bytes:
    data = model_bytes(path)
    if data[4:8] != IDENTIFIER:
        raise ModelError(
            f"{path} is not a .tflite file (bytes 4 to 8 are {data[4:8]!r}, not {IDENTIFIER!r}); "
            "give the file that the TFLite converter wrote, or one named .onnx or .pt2"
        )
    return data
