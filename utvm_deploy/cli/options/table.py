"""The table: a row for each option. Rows that verbs share have names.

A row says the flag, the keyword of the functions of ``utvm_deploy``, the help, the default and what
values there are. ``cli/verbs.py`` says which verb has which rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from utvm_deploy.cli.options import kinds
from utvm_deploy.cli.options.option import Group, Option, Rows

#: What utvm.toml may say in its table [options]: how a model is compiled or judged.
IN_FILE = frozenset(
    {
        *("optimize", "ram-budget", "flash-budget", "cycle-budget", "flash-rate", "scratch"),
        "float-math",
        *("no-float", "input-rows", "shape", "signature", "state", "input", "name", "pool"),
        *("stream", "hop", "time-axis", "end-input"),
        *("samples", "max-ram", "max-flash"),
    }
)
_ELSEWHERE = ", if it lies elsewhere now"
_BOARDS = "boards.board:board_names"
_LOSSES, _OPTIMIZERS = (f"frontend.training.recipe:{one}" for one in ("LOSSES", "OPTIMIZERS"))

COMMON: Rows = (
    Group(
        "common",
        (
            Option("--json", "one JSON object on stdout"),
            Option(
                "-v", "show steps; -vv also commands, -vvv also the wire", 0, keyword="verbosity"
            ),
            Option("--dry-run", "print the commands that would run, and run none"),
        ),
    ),
)

# Models and files.
MODEL = Option("MODEL", "a model of int8 or float32: .tflite, .onnx, .pt2 or .relax")
MODELS = MODEL.but(MODEL.help, "MODEL...", keyword="models")
SHAPES: Rows = (
    Option(
        "--shape [X=]1,64...",
        "the shape of input X, for files whose shapes are symbolic. A model with one input needs "
        "no X=. A symbolic batch is 1 if it is not given. May be given several times",
        (),
        keyword="inputs",
        collect=kinds.shapes_of,
    ),
    Option(
        "--signature NAME",
        "which signature of a .tflite file that has several; STEP,BLOCK takes a step with a block",
    ),
    Option(
        "--state IN=OUT...",
        "the model keeps output OUT, and reads it as input IN in the next run; zeros come first. "
        "May be given several times",
        (),
        keyword="states",
        collect=kinds.states_of,
    ),
    Option("--stream", "a run takes some columns over time, and keeps what it needs of others"),
    Option("--hop N", "of a stream: the columns, or samples, that a run takes"),
    Option(
        "--time-axis N",
        "of a stream: the axis of the input that is time; default: the first one that can be",
    ),
    Option(
        "--end-input",
        "of a stream: a second input says how many columns are behind the recording's end",
    ),
)
IMAGE = Option(
    "--input WORDS",
    'the image that the caller gives: "uint8", "nchw", or a camera\'s, such as "rgb565 160x120 '
    'crop bilinear mean=0.5 std=0.25" (utvm docs images)',
    keyword="image_input",
)
WEIGHTS = Option(
    "--weights W.weights",
    "what `utvm train` wrote: the model with what it learned, which is float32 from the first "
    "trained layer on (utvm docs training)",
)
CHOSEN: Rows = (*SHAPES, IMAGE, WEIGHTS)
FORMAT = Option(
    "--format NAME|FILE.py",
    "keep float32 weights in bfloat16, float16, float16_arithmetic (activations, too), or a format "
    "of a Python file, whose code runs with your rights (utvm docs number-formats)",
    parse=str,
    keyword="number_format",
)
NAME = Option("--name PREFIX", "prefix of every C symbol; default: from the file's name")
OUTPUT = Option("-o, --output FILE", "the file to write")
HTML = Option("--html FILE", "also write a page, which needs no network")
SVG = Option("--svg FILE.svg", "also draw the graph")

# Boards, and where they are.
TRUST = Option(
    "--trust-board",
    "let the board file name any program, argument and compiler flag; it can then do all that you "
    "can (utvm docs security)",
)
BOARD = Option(
    "--board B",
    "a board's name (`utvm boards` lists them), a board file, or utvm://HOST/BOARD for a server's; "
    "default: $UTVM_BOARD",
    variable="UTVM_BOARD",
    names=_BOARDS,
)
A_BOARD: Rows = (BOARD.but(BOARD.help, is_needed=True), TRUST)
PERHAPS_A_BOARD: Rows = (BOARD, TRUST)
PROBE = Option(
    "--probe PROBE", "which of a real board's probes; default: $UTVM_PROBE, bench.toml, its first"
)
SERIAL = Option(
    "--serial SERIAL", "the probe's serial number; default: $UTVM_SERIAL, then bench.toml"
)
PORT = Option(
    "--port PORT",
    "where a real board's link is (/dev/ttyACM0, socket://host:port); default: $UTVM_PORT, "
    "then bench.toml, then USB",
)
PLACE: Rows = (
    PORT,
    PROBE,
    SERIAL,
    Option("--link LINK", "monitor, debug or monitor+debug; default: as the board's file has it"),
    Option(
        "--template TEMPLATE",
        "what images are made from, such as zephyr or esp-idf; default: $UTVM_TEMPLATE, then the "
        "first that the board's file names",
        variable="UTVM_TEMPLATE",
    ),
)
EMULATE = Option(
    "--emulate",
    "run a real board's program on an emulated machine with the same core, with the board's clock, "
    "caches and sizes of memory; cycles are modelled",
)
TIMING = Option(
    "--timing",
    "what an emulated board that has a cycle model counts: modelled cycles, or, about twice as "
    "fast, instructions; other boards have one unit",
    "cycles",
    choices="boards.facts:TIMINGS",
)

# How a model is compiled.
CMSIS_NN = Option(
    "--cmsis-nn DIR",
    "for --kernels cmsis-nn, your CMSIS-NN: a folder with Include/ and libcmsis-nn.a, built for "
    "the board's core, or with Zephyr its module; default: $UTVM_CMSIS_NN",
)
CMSIS_NN_LIBRARY = Option("--cmsis-nn-library FILE", "the library, if it lies elsewhere")
CMSIS_NN_BUILDS = CMSIS_NN.but(
    "your CMSIS-NN: a folder with Include/ and each libcmsis-nn.a in or below it, built for the "
    "board's core, or with Zephyr its module; default: $UTVM_CMSIS_NN. Of several builds, the "
    "fastest for each model is compared; without any: figures that were recorded earlier"
)
CMSIS_NN_LIBRARIES = CMSIS_NN_LIBRARY.but(
    "the library, if it lies elsewhere; may be given several times", "--cmsis-nn-library FILE..."
)
KERNELS = Option(
    "--kernels",
    "best: ours, the fastest for the core; generic: ours in plain C; cmsis-nn: your CMSIS-NN where "
    "it has a function, unless --records know a faster kernel",
    "best",
    choices="compiler.options:KERNELS",
)
PLUGIN = Option(
    "--plugin FILE.py|NAME...",
    "your backend, which computes the operators that it covers: a Python file, or the name of an "
    "installed plug-in; its code runs with your rights; may be given several times",
    parse=str,
)
ETHOS_U = Option(
    "--ethos-u CONFIG[,MODE[,MEMORY]]",
    "Vela compiles regions of int8 for this Arm Ethos-U: ethos-u55-32 to -256, ethos-u65-256 and "
    "-512, ethos-u85-128 to -2048; MODE is shared-sram (weights in flash), sram-only or "
    "dedicated-sram (U65, U85), whose cache is in the board's MEMORY, else in the arena",
    parse=str,
)
ETHOS_U_DRIVER = Option(
    "--ethos-u-driver DIR",
    "your ethos-u-core-driver: its headers, and a libethosu_core_driver.a for the board's core; "
    "without it, images cannot be linked here",
)
RECORDS = Option(
    "--records R.jsonl",
    "what `utvm tune` measured: each layer gets its fastest kernel; for layers that it does not "
    "have, the records that come with utvm choose",
)
OPTIMIZE = Option(
    "--optimize",
    "time: as fast as possible; size: as little flash as possible; balanced: less flash where that "
    "costs little time; ram: the smallest arena, at most 20 %% slower",
    "time",
    choices="compiler.options:LEVELS",
)
NO_FLOAT = Option(
    *("--no-float", "refuse a model with operators that compute in float32", True),
    keyword="allow_float",
)
RAM_BUDGET = Option(
    "--ram-budget BYTES",
    "the fastest plan whose arena and scratch have at most that many bytes (32K is 32,768)",
)
FLASH_BUDGET = Option(
    "--flash-budget BYTES",
    "the fastest level whose code and weights have at most that many bytes; the runtime is not "
    "counted",
)
CYCLE_BUDGET = Option(
    "--cycle-budget CYCLES",
    "the smallest arena within that many cycles by the records (2M is 2,000,000)",
)
FLASH_RATE = Option(
    "--flash-rate CYCLES",
    "the cycles of a run that each byte of flash has to save; a larger number means less flash and "
    "more cycles. Default: 4; levels balanced and size have their own rules",
    parse=kinds.rate,
)
FLOAT_MATH = Option(
    "--float-math",
    "exact: float32 is rounded where the reference rounds; fast: a product and the sum after it "
    "may be rounded together, where the core can",
    "exact",
    choices="compiler.options:FLOAT_MATHS",
)
SCRATCH = Option(
    "--scratch",
    "where layers keep their scratch: in the arena, on the stack, or (auto) in a separate buffer, "
    "if the board has tightly coupled RAM for it",
    "auto",
    choices="compiler.options:SCRATCH_PLACES",
)
POOL = Option(
    "--pool NAME=BYTES...",
    "a memory region of the board, and the bytes of it that the model may use: dtcm=48K. It holds "
    "scratch, activations, and copies of the weights that are read most. May be given several "
    "times",
    (),
    keyword="pools",
    collect=kinds.pools_of,
)
INPUT_ROWS = Option(
    "--input-rows",
    "the model takes its input row by row, as a camera gives it, by NAME_push_rows(arena, rows, "
    "n); the input is never whole in RAM",
)
COMPILED: Rows = (
    NAME,
    Group(
        "how the model is compiled",
        (
            *(KERNELS, CMSIS_NN, CMSIS_NN_LIBRARY, PLUGIN, ETHOS_U, ETHOS_U_DRIVER, RECORDS),
            *(OPTIMIZE, FLOAT_MATH, SCRATCH),
            *(RAM_BUDGET, FLASH_BUDGET, CYCLE_BUDGET, FLASH_RATE, POOL, INPUT_ROWS, NO_FLOAT),
        ),
    ),
)
ARCHIVE = OUTPUT.but(
    "the Model Library Format archive to write", "-o, --output X.tar", is_needed=True
)
DUMP = Option(
    "--dump",
    "also write what this stage made to X.STAGE.txt, or what all of them made",
    choices="compiler.options:DUMPED",
)

# Samples and data.
SAMPLES = Option("--samples N", "random samples to compare", 8)
GOLDEN = Option("--golden G.npz", "samples with recorded outputs: arrays 'inputs' and 'outputs'")
VERIFIED: Rows = (
    Group("", (SAMPLES, GOLDEN), "each other"),
    Option("--allow-float-gap", "exit with 0 even if the reference is far from float32 in a layer"),
)
NUMBER_FORMAT = FORMAT.but(FORMAT.help, "--number-format NAME|FILE.py")
BUNDLED: Rows = (
    Option("--format", "", "cmake", choices="bundling:FORMATS"),
    Option(
        "--benchmark B",
        "the benchmark of MLPerf Tiny, for --format mlperf-tiny: ad01, ic01, kws01 or vww01",
    ),
    Group(
        "",
        (
            SAMPLES.but("random samples in the self-test", default=4),
            GOLDEN.but("samples for the self-test"),
        ),
        "each other",
    ),
    Option(
        "--no-latency",
        "leave the latency report out, which needs the board to run on this computer",
        True,
        keyword="latency",
    ),
    TIMING,
)
DATA = Option("--data DATA", "labelled samples")
LABELS = Option("--labels FILE.npy", "their labels or targets, if elsewhere")
REFERENCE = Option(
    "--reference FLOATMODEL", "the float model that MODEL was made from: .tflite, .onnx or .pt2"
)
SOME_SAMPLES = Option(
    "--samples N", "take only N samples, spread evenly; if samples are windows: N recordings"
)
EVALUATED: Rows = (
    Group(
        "the data, and what the output means",
        (
            DATA.but(
                "labelled samples: .npz, .npy, .csv, a folder with a folder for each class, or "
                "MLPerf Tiny's folder with y_labels.csv",
                is_needed=True,
            ),
            LABELS,
            Option(
                "--raw-type",
                "the type of the elements in .bin files; uint8: 128 is subtracted for int8 inputs; "
                "default: by size, but bytes for an int8 input need this option",
                choices="quality.datasets.sample_files:RAW_TYPES",
            ),
            REFERENCE,
            SOME_SAMPLES,
            Option(
                "--task",
                "what the output is; default: by the data and its shape",
                choices="quality.evaluating.facts:TASKS",
            ),
            Option("--output N", "which output", 0, int),
            Option(
                "--top-k K", "also how often the right class is among the best K", 5, kinds.positive
            ),
            Option("--threshold T", "a single score of at least this is class 1", 0.5, float),
        ),
    ),
)
TRAIN: Rows = (
    MODEL,
    *SHAPES[:2],
    WEIGHTS.but("begin with what an earlier run wrote, for the same layers"),
    OUTPUT.but(
        "the weights to write, after each whole epoch", "-o, --output W.weights", is_needed=True
    ),
    HTML,
)
TRAINED: Rows = (
    Group(
        "the data, and how to train",
        (
            DATA.but(
                "labelled samples: .npz, .npy, .csv, or a folder with a folder for each class",
                is_needed=True,
            ),
            LABELS,
            Option("--held-out DATA", "labelled samples that judge the model after each epoch"),
            Option(
                "--layers WHICH",
                "what trains: last, all, or positions and names with commas between",
                "last",
                kinds.layers,
            ),
            Option("--loss", "of labels, or of targets", "cross_entropy", choices=_LOSSES),
            Option("--optimizer", "as PyTorch has them", "sgd", choices=_OPTIMIZERS),
            Option("--rate X", "the learning rate", 0.01, float),
            Option("--epochs N", "how often all samples are taken", 1),
            Option("--seed S", "of the order of samples, and of dropouts", 0, kinds.seed),
        ),
    ),
)
ACCURACY: Rows = (
    Group("accuracy, as `utvm eval` finds it", (DATA, LABELS, REFERENCE, SOME_SAMPLES)),
)
_LIMIT = "than this on the board (without --board: by the reference kernels), such as"
LIMITS: Rows = (
    Group(
        "gate: exit 1 if a metric",
        tuple(
            Option(
                f"--{flag} METRIC=VALUE...",
                f"is {what} {_LIMIT} {example}; may be given several times",
                *((), parse),
                keyword="limits",
            )
            for flag, what, example, parse in (
                ("min", "less", "accuracy=0.9", kinds.least),
                ("max", "more", "rmse=2.5", kinds.most),
            )
        ),
    ),
)

# Results of runs.
FAIL_OVER = Option("--fail-over P%", "what may exceed --baseline without failing; default: 3 %%")
GATE: Rows = (
    Group(
        "gate: exit 1 if",
        (
            Option(
                "--baseline PREV.json",
                "a layer or the whole model takes more time than in this earlier --json result, or "
                "the image more RAM or flash",
            ),
            FAIL_OVER,
            Option("--max-ram BYTES", "a model takes more RAM (64K is 65,536)", parse=kinds.size),
            Option("--max-flash BYTES", "its image takes more flash", parse=kinds.size),
        ),
    ),
)
NO_STORE = Option(
    *("--no-store", "do not keep the result for `utvm history` and `utvm compare`", True),
    keyword="store",
)
COMPARED: Rows = (
    *(
        Option(
            name,
            f"the {which} run: its digits from `utvm history`, a file with its --json result, a "
            "report's page, or a server's job (job:DIGITS)",
        )
        for name, which in (("BEFORE", "earlier"), ("NOW", "later"))
    ),
    FAIL_OVER.but(
        "exit 1 if a layer, the whole model, its RAM or its flash grew by more than this; metrics "
        "are only shown"
    ),
    HTML,
)
FILTERS: Rows = (
    Option("--board B", "those on this board only", ""),
    Option("--of VERB", "those of this verb only", ""),
    Option("-n, --most N", "list N at most", 30),
)
HISTORY: Rows = (
    Option("[MODEL]", "a model file, a model's name, or its SHA-256", parse=str),
    *FILTERS,
)

# Of one verb each.
BOARDS: Rows = (
    Option("[NAME]", "a board's name or a board file", names=_BOARDS),
    Option(
        "--connected", "list the boards on USB, with their serial ports; with NAME: this board only"
    ),
    Group(
        "another board",
        (
            Option("--new NEW", "write NEW.toml into the current folder"),
            Option("--device PART", "its chip (STM32H743ZI): a file of the same chip is copied"),
            Option(
                *("--from B", "a board of the same chip: its file is copied"),
                keyword="base",
                names=_BOARDS,
            ),
            Option(
                "--from-pack FILE",
                "a CMSIS device pack (.pack or .pdsc) describes the chip; --device names it",
            ),
            Option("--from-pyocd TARGET", "one of pyOCD's built-in targets describes the chip"),
            Option(
                "--from-zephyr BOARD",
                "a board of the Zephyr tree that ZEPHYR_BASE names: images are applications there",
            ),
            Option("--core CORE", "the core of its chip"),
            Option("--clock HZ", "the core's clock (64M)"),
            *(
                Option(
                    f"--{what.lower()} BYTES[@ADDRESS]",
                    f"size of its largest {what} ({such}); for an unknown chip, with address "
                    "(1M@0x08000000)",
                )
                for what, such in (("flash", "512K"), ("RAM", "128K"))
            ),
        ),
    ),
)
MODELS_GET: Rows = (
    Option("[get]", "copy one model", choices=("get",), keyword="action"),
    Option("[NAME]", "the model to copy", names="models:names"),
    OUTPUT.but(
        "where to copy its files; default: the current folder",
        "-o, --output FOLDER",
        default=Path(),
    ),
)
DOCTOR: Rows = (
    Option("--board B", "check only what this board needs", names=_BOARDS),
    TRUST,
    Option("--port PORT", "serial port of a real board; default: $UTVM_PORT"),
    SERIAL.but(
        "serial number of its probe, where several boards are plugged in; default: $UTVM_SERIAL"
    ),
)
INSPECT: Rows = (
    Group(
        "",
        (
            MODEL.but(MODEL.help, "[MODEL]"),
            Option(
                "--supported",
                "instead of a model: every operator that can be imported, and its constraints",
            ),
        ),
        "all but one",
    ),
    Option(
        "--format",
        "with --supported: the operators in files of this format; onnx and torch: in quantized "
        "files",
        choices=("tflite", "onnx", "torch"),
    ),
    Option(
        "--board B",
        "also estimate its cycles, RAM and flash on a board, by formulas: nothing is compiled",
        names=_BOARDS,
    ),
    SVG,
)
PASSES = Option(
    "--passes", "also list what each pass of the compiler removes: layers, MACs, weights and RAM"
)
CONVERT: Rows = (
    MODEL.but(
        "a quantized model, .onnx or .pt2, or a .tflite file of uint8 or with something to choose; "
        "`utvm quantize` takes float models"
    ),
    OUTPUT.but("the file to write", "-o, --output OUT.tflite", is_needed=True),
    Option(
        "--prefill BLOCK.tflite",
        "add this block of several steps of the same module (utvm docs writer)",
    ),
)
QUANTIZE: Rows = (
    MODEL.but("a float model: .tflite, .onnx or .pt2"),
    Option(
        "--data CALIB",
        "typical inputs, a few hundred: .npz, .npy, .csv, or a folder for each class",
        is_needed=True,
    ),
    Option(
        "--no-float", "exit with 1 if an operator stays float; the file is written all the same"
    ),
    OUTPUT.but("the quantized model to write", "-o, --output OUT.tflite", is_needed=True),
)
QUANTIZED: Rows = (
    Option(
        "--scheme",
        "int8; int4: int8 with weights of int4; int16x8: int16 activations and int8 weights; or "
        "mixed: one of these for each layer",
        "int8",
        choices="quality.quantizing.facts:WANTED_SCHEMES",
    ),
    Option(
        "--clipping",
        "ranges of tensors: as observed (min-max), without the outermost elements (percentile), "
        "with the least mean square error (mse), or the best of them on samples that are held out "
        "(auto)",
        "min-max",
        choices="quality.quantizing.facts:WANTED_CLIPPINGS",
    ),
    Option(
        "--equalize",
        "also try weights that are equalized across layers, and keep the better model: yes; auto: "
        "not for .onnx, which becomes a .tflite file first; or no",
        "auto",
        choices="quality.quantizing.facts:WANTED_EQUALIZING",
    ),
    Option(
        "--input-range LOW,HIGH",
        "the smallest and largest value that float inputs can have; default: as in CALIB",
    ),
    Option("--float-ends", "leave the inputs and outputs of the model float"),
    Option(
        "--sensitivity",
        "also print the loss if one layer alone is quantized; with --board, also its time",
    ),
    Group(
        "with --scheme mixed",
        (
            Option(
                "--max-loss X",
                "the most that may be lost: percentage points of accuracy against the float model "
                "if CALIB has labels, else dB of SQNR against the int16x8 model; default: 0.5",
            ),
            RAM_BUDGET.but("RAM (32K is 32,768 bytes)"),
            FLASH_BUDGET.but("flash"),
            CYCLE_BUDGET.but("cycles (2M is 2,000,000)"),
        ),
    ),
    TIMING,
)
BUNDLE: Rows = (
    MODEL.but(MODEL.help, "[MODEL]"),
    *CHOSEN,
    Option("--check DIR", "check a bundle (folder or .zip) instead"),
    OUTPUT.but("the bundle to write; X.pack: of cmsis-pack", "-o, --output DIR|X.zip"),
)
TREE = Option("DIR", "the tree", keyword="directory")
CREATED: Rows = (
    MODEL.but("a model, or what compile wrote", "MODEL|X.tar", keyword="model"),
    *CHOSEN,
    TREE.but("the tree to make"),
    Option("--template TEMPLATE", "one of the board's templates; default: its first"),
)
FLASHED: Rows = (
    TREE.but("the tree, or a project that ESP-IDF built"),
    TRUST,
    PORT.but(PORT.help, variable="UTVM_PORT"),
    PROBE.but(PROBE.help, variable="UTVM_PROBE"),
    SERIAL.but(SERIAL.help, variable="UTVM_SERIAL"),
)
RUN: Rows = (
    IMAGE.but(
        "an input's values, in the model's shape or without its leading 1; once for each input of "
        f"the model. Without it: a random sample. Or words: {IMAGE.help}",
        "--input FILE.npy|WORDS...",
        default=(),
        parse=kinds.file_or_words,
    ),
    Option(
        "--output FILE.npy...", "where to write an output; once for each output of the model", ()
    ),
    Option("--float64", "also say how far each layer is from the same model in float64"),
    Group(
        "text of a language model (utvm docs writer)",
        (
            Option("--prompt TEXT", "let the model write, and begin with this text"),
            Option(
                "--vocabulary FILE.json",
                "the model's vocabulary; default: the one in the model's file",
            ),
            Option("--tokens N", "the most tokens to write; default: until the text ends"),
            Option("--temperature X", "0 takes the best token, more takes others; default: 0.8"),
            Option(
                "--top-k K", "choose among the K best tokens; default: all", None, kinds.positive
            ),
            Option("--seed S", "another seed gives another text; default: 0", None, kinds.seed),
        ),
    ),
)
HOT = Option(
    "--hot N",
    "list the N hottest blocks of code, each instruction with its cycles and why it waits",
)
PROFILE: Rows = (
    Option("--wide", "every column, however wide"),
    HTML,
    Option(
        "--trace FILE.json", "also write Chrome's trace events, for chrome://tracing or Perfetto"
    ),
)
NO_IMAGE = Option(
    "--no-image",
    "leave out what an image with the runtime takes; nothing is linked then",
    True,
    keyword="image",
)
MEMORY: Rows = (SVG.but("also draw the arena over time"), HTML)
AGAINST = Option(
    "--against",
    "the other engine; muriscv-nn is for RISC-V",
    "cmsis-nn",
    choices=("cmsis-nn", "muriscv-nn"),
)
MURISCV_NN_BUILDS = Option(
    "--muriscv-nn DIR",
    "for --against muriscv-nn, your muRISCV-NN: a folder with Include/ and each libmuriscvnn.a in "
    "or below it, built for the board's core; default: $UTVM_MURISCV_NN",
)
MURISCV_NN_LIBRARIES = CMSIS_NN_LIBRARIES.but(
    CMSIS_NN_LIBRARIES.help, "--muriscv-nn-library FILE..."
)
CERTIFICATES = Option(
    "--certificates DIR",
    "for a cluster at tls://..., what `utvm serve --make-certificates DIR` made",
)
TUNED: Rows = (
    Option("--trials N", "stop when --records have N candidates; those of earlier runs count, too"),
    Option("--minutes M", "stop after this time, even if candidates are left", parse=kinds.minutes),
    OPTIMIZE,
    Option(
        "--sketches",
        "for int8 kernels that a SIMD family computes, also search sketches of TVM's rules and try "
        "tensor intrinsics; these trials count for --trials, too",
    ),
    Option("--seed S", "seed of the search", 0, kinds.seed),
    CMSIS_NN,
    *(PLUGIN, ETHOS_U, ETHOS_U_DRIVER, NO_FLOAT),
    Option(
        "--cluster ADDRESS",
        "measure at the workers of this Dask scheduler that have the board (tcp://HOST:PORT, "
        "tls://HOST:PORT), at all of them at once",
    ),
    CERTIFICATES,
)
TUNE: Rows = (
    RECORDS.but("where measurements are kept; what is there already is not measured again"),
    KERNELS.but(
        "best: ours; cmsis-nn: also measure your CMSIS-NN's function for each kernel, for `utvm "
        "compile --kernels cmsis-nn --records`",
        choices=("best", "cmsis-nn"),
    ),
    CMSIS_NN_LIBRARY,
    Option("--show-space", "list every candidate and measure none"),
)
REPORT: Rows = (
    MODEL.but(
        "a model of int8 or float32, with --board; or what `utvm tune` wrote",
        "MODEL|R.jsonl",
        keyword="model",
    ),
    *CHOSEN,
    FORMAT,
    OUTPUT.but(
        "the page, which needs nothing outside; default for a model: MODEL.BOARD.html; for "
        "records: no page"
    ),
    Option("--try-it", "the page also runs the model in the reader's browser"),
)
REPRODUCE: Rows = (
    Option("REPORT", "what `utvm report MODEL --board B` wrote: the page, or its --json"),
    Option("--model MODEL", f"the model's file{_ELSEWHERE}"),
    DATA.but(f"the file or folder of samples{_ELSEWHERE}"),
    LABELS.but(f"the file of labels{_ELSEWHERE}"),
    REFERENCE.but(f"the float model{_ELSEWHERE}"),
    RECORDS.but(f"the file of records{_ELSEWHERE}"),
    # The report names the board; $UTVM_BOARD is for verbs that need one.
    BOARD.but("another name, file or server of the board; default: as in the report", variable=""),
    TRUST,
    *PLACE,
    CMSIS_NN_BUILDS.but(
        "your CMSIS-NN, if the report has measured figures of it; default: $UTVM_CMSIS_NN"
    ),
    CMSIS_NN_LIBRARIES,
    PLUGIN,
    ETHOS_U.but(f"{ETHOS_U.help}; default: as in the report"),
    ETHOS_U_DRIVER,
    OUTPUT.but("also write the new report"),
)
SILICON: Rows = (
    OUTPUT.but(
        "the file to write; if it exists, the run adds what is missing", "-o, --output F.json"
    ),
    Option(
        "--models DIR",
        "also measure the models of this folder; their file names and layer names go into the file",
    ),
    Option(
        "--cases PATTERN",
        "only micro-benchmarks with such names, such as 'ldr*'; default: all of the core's",
    ),
    SAMPLES.but("random samples to compare of each model"),
    Option("--show F.json", "show the tables of a file"),
)
SHELL = Option("SHELL", "which shell", choices=("bash", "zsh", "fish"))
INIT: Rows = (
    MODEL.but("the model to deploy", "[MODEL]"),
    Option("--board B", "a board's name or file", names=_BOARDS),
    OPTIMIZE.but("what to compile for", default=None),
    RAM_BUDGET.but("the most that the arena may take", parse=kinds.checked_size),
    RECORDS.but("what `utvm tune` measured"),
)
DOCS = Option(
    "[PAGE|WORD...]",
    "a page's name, such as guides/tuning or tuning; or words to search for",
    keyword="words",
    names="cli.doc_pages:pages",
)

# The server, its workers and its clients.
SERVER = Option(
    "--server URL",
    "such as https://bench.example.org:8086; default: $UTVM_SERVER. Its token is in $UTVM_TOKEN or "
    "a file",
)
LISTEN = Option(
    "--listen HOST[:PORT]", "let other computers' `utvm worker` join here; default: nobody joins"
)
SERVE: Rows = (
    Option(
        "--data DIR",
        "folder of models, jobs and files; default: `service` next to the runs (UTVM_RUNS)",
    ),
    Option("--host H...", "where to listen; default: 127.0.0.1, which only this computer reaches"),
    Option("--port P", "where to listen; 0 takes a free port", 8086, kinds.port),
    Group(
        "who may use it",
        (
            Option(
                "--make-certificates DIR",
                "do not serve: make certificates and a token for the names and addresses that "
                "--host gives",
            ),
            CERTIFICATES.but("what --make-certificates made: ask for its token and encrypt"),
            Option(
                "--token-file FILE",
                "ask for the token in this file, not for the one of --certificates",
            ),
            Option(
                "--allow-code",
                "take uploads that are programs: .pt2 and .relax models, images for the board "
                "`host`; anyone who sends one can do all that you can (utvm docs security)",
            ),
        ),
    ),
    Group(
        "workers",
        (
            Option(
                "--scheduler ADDRESS",
                "send jobs to this Dask scheduler; default: to a worker on this computer",
            ),
            LISTEN,
        ),
    ),
    Group(
        "disk",
        (
            Option("--keep-days N", "remove jobs N days after they ended", 90),
            Option(
                "--disk-limit SIZE",
                "the most that all data may take, such as 500M or 20G; the oldest jobs are removed "
                "to make room",
                "10G",
            ),
        ),
    ),
)
SUBMIT: Rows = (
    MODELS,
    Option("--board B...", "a board of the server; may be repeated; default: $UTVM_BOARD", ()),
    Option(
        "--job VERB",
        "what to do: inspect, compile, verify, profile, tune, train, bench, bundle",
        is_needed=True,
    ),
    Option("--wait", "wait for the jobs; the exit code is the verb's"),
    Option(
        "--wait-for-board",
        "wait until a worker offers the boards, for --wait-minutes at most; without it, a board "
        "that no worker offers is an error",
    ),
    Option("--wait-minutes N", "wait so long at most; default: 1440. The jobs continue after it"),
    OUTPUT.but(
        "wait, and write the jobs' files there; of several jobs into a folder each",
        "-o, --output DIR",
    ),
    # It is refused with a reason.
    PLUGIN.but(argparse.SUPPRESS),
    SERVER,
)
OPTION = Option("--option NAME=VALUE...", "any option that the server's jobs have", ())
JOB = Option("JOB", "its 12 digits, from `utvm jobs`")
JOBS: Rows = (
    JOB.but("its 12 digits; default: all", "[JOB]"),
    Option("--state STATE", "such as running or failed", ""),
    Option("--model M", "jobs of this model file, or of this SHA-256", ""),
    *FILTERS,
    Option("--cancel JOB", "end this job"),
    Option("--log", "show what JOB wrote"),
    SERVER,
)
FETCH: Rows = (
    JOB,
    Option("[FILE...]", "names of its files; default: all of them", parse=str, keyword="files"),
    OUTPUT.but("the folder to write to; default: this one", "-o, --output DIR", default=Path()),
    SERVER,
)
WORKER: Rows = (
    Option("[ADDRESS]", "the scheduler's: tls://HOST:PORT, or tcp://HOST:PORT on this computer"),
    LISTEN.but("instead of ADDRESS: start a scheduler here, which others join; default port: 8786"),
    CERTIFICATES.but("the scheduler's certificates (utvm serve --make-certificates DIR)"),
    Option(
        "--dashboard PORT",
        "with --listen: show Dask's dashboard to this computer, at http://127.0.0.1:PORT/",
        parse=kinds.positive,
    ),
    Option(
        "--name NAME",
        "with ADDRESS: what the cluster calls this worker; default: this computer's name",
    ),
    Option(
        "--patience S",
        "with ADDRESS: wait S seconds for a scheduler that does not answer; default: 600",
        parse=kinds.positive,
    ),
)
