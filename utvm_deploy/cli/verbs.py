"""The verbs of the command line: a row for each, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.cli.options import table as t
from utvm_deploy.cli.options.option import Rows


@dataclass(frozen=True)
class Verb:
    """A verb, or one of the actions of a verb."""

    name: str
    help: str
    options: Rows = ()
    #: Options that its function of ``utvm_deploy`` takes as keywords.
    taken: Rows = ()
    #: Whether it takes a model, a board and options from utvm.toml.
    reads_file: bool = False
    epilog: str = ""
    actions: tuple[Verb, ...] = ()
    #: The function that gives more rows, as ``module:name``.
    more: str = ""

    @property
    def module(self) -> str:
        """Its module in the package ``cli``, whose function ``run`` does the work."""
        (path,) = Path(__file__).parent.glob(f"*_verbs/{self.name}_verb.py")
        return f"{path.parent.name}.{path.stem}"

    @property
    def rows(self) -> Rows:
        """All of its options, and those that all verbs have."""
        return *t.COMMON, *self.options, *self.taken


_MODEL: Rows = (t.MODEL, *t.CHOSEN, t.FORMAT)
_REACHED: Rows = (*t.A_BOARD, *t.PLACE, t.EMULATE)
_PERHAPS_REACHED: Rows = (*t.PERHAPS_A_BOARD, *t.PLACE, t.EMULATE)

#: In the order of the help.
VERBS = {
    verb.name: verb
    for verb in (
        Verb("boards", "list the boards, or print one", t.BOARDS),
        Verb(
            "models", "list the models that ship, or copy one (utvm models get NAME)", t.MODELS_GET
        ),
        Verb("doctor", "what is installed and what is missing", t.DOCTOR),
        Verb(
            "inspect",
            "operators, shapes, quantization, MACs and memory",
            (*t.CHOSEN, t.NUMBER_FORMAT, *t.INSPECT),
            (t.PLUGIN, t.PASSES),
            reads_file=True,
        ),
        Verb(
            "convert",
            "write a quantized .onnx, .pt2 or uint8 model as a .tflite file",
            (*t.CONVERT, *t.CHOSEN),
        ),
        Verb(
            "quantize",
            "a float model to an int8 or int16 .tflite file",
            (*t.QUANTIZE, *t.PERHAPS_A_BOARD, *t.SHAPES),
            t.QUANTIZED,
        ),
        Verb(
            "compile",
            "compile a model to C for a board",
            (*_MODEL, *t.A_BOARD, t.ARCHIVE, t.DUMP),
            t.COMPILED,
            reads_file=True,
        ),
        Verb(
            "project",
            "create, build and flash a source tree",
            actions=(
                Verb(
                    "create",
                    "write a tree that builds with CMake",
                    (*t.CREATED, t.FORMAT, *t.A_BOARD),
                    t.COMPILED,
                ),
                Verb("build", "build the tree's image", (t.TREE, t.TRUST)),
                Verb("flash", "put the built image on its board", t.FLASHED),
            ),
        ),
        Verb(
            "run",
            "run a model on a board",
            (t.MODEL, *t.SHAPES, t.WEIGHTS, t.FORMAT, *_REACHED, t.TIMING, *t.RUN),
            t.COMPILED,
            reads_file=True,
        ),
        Verb(
            "train",
            "train layers of a model on a board, from labelled data",
            (*t.TRAIN, *_REACHED, t.TIMING),
            (*t.TRAINED, *t.COMPILED),
            reads_file=True,
        ),
        Verb(
            "tune",
            "find the fastest kernels for models by running them",
            (t.MODELS, *t.CHOSEN, t.FORMAT, *_REACHED, t.TIMING, *t.TUNE, t.NO_STORE),
            t.TUNED,
            reads_file=True,
            epilog="Kernels of float32 are measured with exact float math. A compile with "
            "--float-math fast follows the same records.",
        ),
        Verb(
            "report",
            "one page on a model and a board, or on what tuning found",
            (*t.REPORT, *_PERHAPS_REACHED, t.TIMING),
            (*t.ACCURACY, *t.COMPILED),
            reads_file=True,
        ),
        Verb("reproduce", "make a report again, and compare it", t.REPRODUCE),
        Verb(
            "verify",
            "compare every output byte and layer with the reference",
            (*_MODEL, *_REACHED, t.NO_STORE),
            (*t.COMPILED, *t.VERIFIED),
            reads_file=True,
        ),
        Verb(
            "eval",
            "accuracy on labelled data, on this computer and on a board",
            (*_MODEL, *_PERHAPS_REACHED, t.HTML, *t.LIMITS),
            (*t.EVALUATED, *t.COMPILED),
            reads_file=True,
        ),
        Verb(
            "profile",
            "per-layer cost, RAM and flash",
            (*_MODEL, *_REACHED, t.TIMING, *t.PROFILE, *t.GATE, t.NO_STORE),
            (*t.COMPILED, t.HOT),
            reads_file=True,
        ),
        Verb(
            "memory",
            "RAM, stack and flash of a model, and what sets the peak",
            (*_MODEL, *t.A_BOARD, *t.MEMORY),
            (*t.COMPILED, t.NO_IMAGE),
            reads_file=True,
        ),
        Verb(
            "bench",
            "compare our kernels with CMSIS-NN's, layer by layer",
            (
                *(t.MODELS, *t.CHOSEN, *_REACHED, t.TIMING, t.AGAINST, t.CMSIS_NN_LIBRARIES),
                t.MURISCV_NN_LIBRARIES,
                *(t.HTML, *t.GATE, t.NO_STORE),
            ),
            (t.CMSIS_NN_BUILDS, t.MURISCV_NN_BUILDS, t.RECORDS, t.NO_FLOAT),
            reads_file=True,
        ),
        Verb(
            "bundle",
            "write a model as a library for somebody else's firmware",
            (*t.BUNDLE, t.NUMBER_FORMAT, *t.PERHAPS_A_BOARD),
            (*t.COMPILED, *t.BUNDLED),
            reads_file=True,
        ),
        Verb(
            "silicon",
            "measure models and micro-benchmarks on a real board, and compare with the cycle model",
            (*t.PERHAPS_A_BOARD, *t.PLACE, *t.SILICON),
        ),
        Verb("history", "list what was run before on this computer", t.HISTORY),
        Verb("compare", "compare two runs of profile, bench or report", (*t.COMPARED, t.SERVER)),
        Verb("serve", "serve models, jobs and boards to a team", t.SERVE),
        Verb(
            "submit",
            "let a server do a verb, on its boards",
            t.SUBMIT,
            more="cli.server_verbs.job_options:rows",
        ),
        Verb("jobs", "list a server's jobs, or look at one", t.JOBS),
        Verb("fetch", "download the files of a server's job", t.FETCH),
        Verb("worker", "offer this computer and its boards to a cluster", t.WORKER),
        Verb(
            "completion",
            "print the script that completes command lines",
            (t.SHELL,),
            epilog="once for each user:\n"
            "  echo 'eval \"$(utvm completion bash)\"' >> ~/.bashrc\n"
            "  echo 'eval \"$(utvm completion zsh)\"' >> ~/.zshrc (after compinit)\n"
            "  utvm completion fish > ~/.config/fish/completions/utvm.fish",
        ),
        Verb("init", "write utvm.toml: the model, board and options of this folder", t.INIT),
        Verb("docs", "list the pages of the documentation, print or search them", (t.DOCS,)),
    )
}
