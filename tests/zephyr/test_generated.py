"""Generated Zephyr applications: their texts, and what the build is told. No Zephyr is needed."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_model import tiny_model

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, BuildError, MissingTool
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.process import Completed
from utvm_deploy.boards.board import Board, board_names, load_board, with_template
from utvm_deploy.device.doctor.check import Check
from utvm_deploy.device.doctor.installed import installed_checks
from utvm_deploy.device.probe.argv import emulator_argv
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.project import build_image, create_project, zephyr_build
from utvm_deploy.project.tree import project_files
from utvm_deploy.project.zephyr import file_name, workspace_bytes
from utvm_deploy.project.zephyr_build import find_zephyr, kernel_key, reason

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOARDS = [name for name in board_names() if load_board(name).project.zephyr is not None]

#: What Zephyr must know of a board that we have never heard of: ten lines.
FOREIGN = """\
name = "foreign"
vendor = "NXP"
description = "FRDM-K64F under Zephyr"
cpu = { core = "cortex-m4", clock_hz = 120_000_000, fpu = "single", dsp = true }
memory = [
  { name = "flash", address = 0x0, size = 0x0010_0000, kind = "flash", executable = true },
  { name = "ram", address = 0x2000_0000, size = 0x0003_0000, kind = "ram", executable = true },
]
project = { templates = ["zephyr"], zephyr_board = "frdm_k64f" }
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Board:
    """The ten-line board."""
    path = tmp_path / "foreign.toml"
    path.write_text(FOREIGN)
    return load_board(path)


def files_of(name: str, **changes: object) -> dict[str, str]:
    """The tree of a small model for a shipped board."""
    board = with_template(load_board(name), "zephyr")
    return project_files(dataclasses.replace(tiny_model(board), **changes), board)  # type: ignore[arg-type]


def settings(text: str) -> dict[str, str]:
    """CONFIG_X=value lines of a Kconfig file; fails on anything that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"CONFIG_([A-Z0-9_]+)=(\S+)", line)
            assert match, line
            found[match[1]] = match[2]
    return found


def test_the_promised_boards_are_there() -> None:
    wanted = {"qemu_x86", "qemu_riscv32", "mps2_an385", "mps2_an521", "mps3_an547"}
    assert {*wanted, "nucleo_f746zg", "stm32f746g_disco"} <= set(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_a_tree_is_whole(name: str) -> None:
    board = load_board(name)
    assert board.project.zephyr is not None
    files = files_of(name)
    assert {
        "CMakeLists.txt",
        "Kconfig",
        "prj.conf",
        "prj_standalone.conf",
        "sample.yaml",
        "toolchain.cmake",
        "west.yml",
        "template/app_config.h",
        "template/image_id.h",
        "template/entry_points.c",
        "template/main.c",
        "model/tiny.c",
        "runtime/utvm.c",
        f"{name}.toml",
    } <= set(files)
    # Nothing is left to fill in.
    for path, text in files.items():
        assert path.endswith((".c", ".h")) or not re.search(r"@[A-Z_]+@", text), path
    assert f"set(BOARD {board.project.zephyr.board})" in files["CMakeLists.txt"]
    assert json.loads(files["utvm_project.json"])["template"] == "zephyr"
    # The runtime is the one that every project has.
    plain = project_files(None, load_board("host"))
    for path in (path for path in plain if path.startswith("runtime/")):
        assert files[path] == plain[path]


@pytest.mark.parametrize("name", BOARDS)
def test_kconfig_files_hold_settings_only(name: str) -> None:
    files = files_of(name)
    for path in (path for path in files if path.endswith(".conf")):
        settings(files[path])
    driven = settings(files["prj.conf"])
    # Not one byte on the line that is not the runtime's.
    for silent in ("CONSOLE", "UART_CONSOLE", "PRINTK", "BOOT_BANNER", "LOG"):
        assert driven[silent] == "n"
    assert driven["SERIAL"] == driven["UART_INTERRUPT_DRIVEN"] == "y"
    assert settings(files["prj_standalone.conf"])["UTVM_STANDALONE"] == "y"
    assert files["Kconfig"].rstrip().endswith('source "Kconfig.zephyr"')
    # Every symbol of ours that a file sets, and the C code reads, is declared.
    declared = set(re.findall(r"^config (UTVM_\w+)$", files["Kconfig"], re.MULTILINE))
    read = set(re.findall(r"CONFIG_(UTVM_\w+)", "".join(files.values())))
    assert read == declared


def test_fpu_and_caches_of_the_board_are_switched_on() -> None:
    plain = settings(files_of("mps2_an385")["prj.conf"])
    assert not {"FPU", "CACHE_MANAGEMENT"} & set(plain)
    rich = settings(files_of("stm32f746g_disco")["prj.conf"])
    assert rich["FPU"] == rich["FPU_SHARING"] == rich["CACHE_MANAGEMENT"] == "y"
    x86 = settings(files_of("qemu_x86")["prj.conf"])
    assert x86["FPU"] == "y" and "FPU_SHARING" not in x86


def test_what_one_board_needs_stands_where_zephyr_looks() -> None:
    files = files_of("mps3_an547")
    assert "utvm,workspace = &isram" in files["socs/an547.overlay"]
    for name in BOARDS:
        if load_board(name).cpu.target.name == "arm_m":
            own = settings("".join(t for p, t in files_of(name).items() if p.endswith(".conf")))
            assert own["UTVM_OWN_MPU_REGIONS"] == own["HW_STACK_PROTECTION"] == "y"
    assert file_name("mps2/an521/cpu0") == "mps2_an521_cpu0"
    assert "boards/mps2_an521_cpu0.conf" in files_of("mps2_an521")


def test_a_board_that_was_renamed_has_its_files_under_both_names(tree: Path) -> None:
    files = files_of("mps3_an547")
    for kind in ("conf", "overlay"):
        assert files[f"socs/an547.{kind}"] == files[f"socs/corstone300_an547.{kind}"]
    # Zephyr 4 refuses boards/mps3_an547.conf, and takes either name in socs/.
    assert not any(name.startswith("boards/") for name in files)
    board = with_template(load_board("mps3_an547"), "zephyr")

    def asked_for() -> str:
        commands: list[Sequence[str]] = []
        with process.dry_run(commands.append):
            build_image(None, board)
        return next(a for argv in commands for a in argv if a.startswith("-DBOARD="))

    assert asked_for() == "-DBOARD=mps3/an547"
    folder = tree / "boards" / "arm" / "mps3"
    folder.mkdir(parents=True)
    (folder / "mps3_corstone300_an547.yaml").touch()
    assert asked_for() == "-DBOARD=mps3/corstone300/an547"


@pytest.mark.parametrize(
    ("name", "is_used"), [("stm32f746g_disco", 1), ("nucleo_f746zg", 1), ("mps2_an385", 0)]
)
def test_coupled_ram_is_used_where_the_board_has_it(name: str, is_used: int) -> None:
    assert f"#define UTVM_USE_DTCM {is_used}\n" in files_of(name)["template/app_config.h"]
    board = with_template(load_board(name), "zephyr")
    large = dataclasses.replace(board, project=dataclasses.replace(board.project, stack_bytes=9999))
    # A stack that lies elsewhere takes nothing from the workspace, so models share a kernel.
    assert (workspace_bytes(large) == workspace_bytes(board)) == bool(is_used)


def test_the_uart_has_the_speed_that_the_host_uses() -> None:
    config = files_of("nucleo_f746zg")["template/app_config.h"]
    assert f"#define UTVM_UART_BAUD {load_board('nucleo_f746zg').link.baud}u" in config


def test_compilers_are_chosen_by_the_core() -> None:
    assert "arm-none-eabi-gcc" in files_of("mps2_an385")["toolchain.cmake"]
    assert "-m32" in files_of("qemu_x86")["toolchain.cmake"]
    assert "riscv64-unknown-elf-gcc" in files_of("qemu_riscv32")["toolchain.cmake"]


def test_ticks_are_the_board_files() -> None:
    config = files_of("mps2_an385")["template/app_config.h"]
    assert "#define UTVM_TICKS_MULTIPLIER 5u" in config
    assert "#define UTVM_TICKS_DIVISOR 8u" in config
    assert "#define UTVM_TICKS_UNIT UTVM_TICK_UNIT_INSTRUCTIONS" in config
    riscv = files_of("qemu_riscv32")
    assert "#define UTVM_TICKS_DIVISOR 64u" in riscv["template/app_config.h"]
    assert settings(riscv["boards/qemu_riscv32.conf"])["UTVM_MINSTRET_HZ"] == "1000000000"
    real = files_of("nucleo_f746zg")["template/app_config.h"]
    assert "#define UTVM_TICKS_UNIT UTVM_TICK_UNIT_CYCLES" in real


def test_ten_lines_describe_any_zephyr_board(foreign: Board, tmp_path: Path) -> None:
    assert len(FOREIGN.splitlines()) <= 10
    assert foreign.template == "zephyr"
    assert foreign.probe.commands[0].flash.arguments[0] == "flash"
    assert workspace_bytes(foreign) < foreign.main_ram.size
    tree = create_project(tiny_model(foreign), foreign, tmp_path / "tree")
    assert "set(BOARD frdm_k64f)" in (tree / "CMakeLists.txt").read_text()
    assert not (tree / "boards").exists()
    assert load_board(tree / "foreign.toml") == foreign


def test_a_small_board_keeps_room_for_the_kernel(foreign: Board) -> None:
    flash, ram = foreign.memory
    tight = dataclasses.replace(foreign, memory=(flash, dataclasses.replace(ram, size=32 * 1024)))
    assert workspace_bytes(tight) == 8 * 1024


def test_another_model_leaves_the_kernel_alone() -> None:
    board = load_board("qemu_x86")
    one, other = tiny_model(board), tiny_model(board)
    sources = {n.replace("tiny", "other"): t for n, t in other.sources.items()}
    other = dataclasses.replace(other, name="other", sources=sources)
    first, second, bare = (project_files(model, board) for model in (one, other, None))
    assert first["template/image_id.h"] != second["template/image_id.h"]
    assert kernel_key(first, "gcc") == kernel_key(second, "gcc") == kernel_key(bare, "gcc")
    assert kernel_key(first, "gcc") != kernel_key(first, "another gcc")
    assert kernel_key(first, "gcc") != kernel_key(files_of("mps2_an385"), "gcc")


def test_a_tree_holds_one_model(tmp_path: Path) -> None:
    board = load_board("qemu_x86")
    model = tiny_model(board)
    create_project(model, board, tmp_path / "tree")
    sources = {n.replace("tiny", "other"): t for n, t in model.sources.items()}
    create_project(
        dataclasses.replace(model, name="other", sources=sources), board, tmp_path / "tree"
    )
    names = {path.name for path in (tmp_path / "tree" / "model").iterdir()}
    assert names == {"other.c", "other.h"}


def test_scratch_on_the_stack_makes_the_tasks_stack_larger() -> None:
    config = files_of("qemu_x86", stack_bytes=5000)["template/app_config.h"]
    match = re.search(r"#define UTVM_MODEL_STACK_BYTES (\d+)u", config)
    assert match and int(match[1]) >= 5000
    assert "#define UTVM_MODEL_STACK_BYTES 0u" in files_of("qemu_x86")["template/app_config.h"]


def test_a_model_that_calls_cmsis_nn_asks_zephyr_for_it() -> None:
    library = ExternalLibrary(
        name="CMSIS-NN",
        url="",
        include_dirs=(),
        library="",
        digest="",
        built_with="",
        functions=("arm_convolve_wrapper_s8",),
        zephyr_config=("CMSIS_NN", "CMSIS_NN_CONVOLUTION"),
    )
    files = files_of("mps2_an385", external=library)
    config = settings(files["prj.conf"])
    assert config["CMSIS_NN"] == config["CMSIS_NN_CONVOLUTION"] == "y"
    assert "tiny_check_library" in files["template/entry_points.c"]


def test_a_template_makes_a_board_of_its_own() -> None:
    board = load_board("mps3_an547")
    zephyr = with_template(board, "zephyr")
    assert zephyr.template == "zephyr" and zephyr.name == board.name
    assert zephyr.link.kinds == ("monitor",)
    assert not zephyr.has_cycle_model
    assert "shift=6,sleep=on" in emulator_argv(zephyr, Path("x.elf"), None, 0)
    assert with_template(board, None) is board
    with pytest.raises(BoardError, match="has no template 'zefyr'; did you mean 'zephyr'"):
        with_template(board, "zefyr")


def test_twister_is_told_what_is_printed() -> None:
    sample = files_of("qemu_x86")["sample.yaml"]
    assert "- qemu_x86" in sample and '"tiny: output' in sample
    assert "harness" not in files_of("nucleo_f746zg")["sample.yaml"]


# What the build is told, and what it says of what is missing.


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enough of a Zephyr tree to be taken for one."""
    base = tmp_path / "zephyr tree"
    base.mkdir()
    (base / "VERSION").write_text("VERSION_MAJOR = 3\nVERSION_MINOR = 7\nPATCHLEVEL = 1\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(base))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cmake", "ninja", "dtc", "qemu-system-i386", "arm-none-eabi-gcc"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    return base


def test_arguments_of_the_build(tree: Path) -> None:
    commands: list[Sequence[str]] = []
    with process.dry_run(commands.append):
        build_image(tiny_model(load_board("qemu_x86")), load_board("qemu_x86"))
    configure = next(argv for argv in commands if "-GNinja" in argv)
    assert configure[0] == "cmake" and "-DBOARD=qemu_x86" in configure
    assert any(argv[:2] == ["cmake", "--build"] for argv in map(list, commands))


@pytest.mark.tools
def test_no_zephyr_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    with pytest.raises(MissingTool, match="set ZEPHYR_BASE to its folder"):
        build_image(None, load_board("qemu_x86"))
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path / "nowhere"))
    with pytest.raises(BuildError, match="where no Zephyr tree is"):
        find_zephyr()


@pytest.mark.parametrize("program", ["cmake", "ninja", "dtc"])
def test_a_missing_program_is_named(
    program: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.parent / "tools" / program).unlink()
    with pytest.raises(MissingTool, match=f"^{program} is not installed.*apt install"):
        find_zephyr()


def test_missing_python_packages_are_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(argv: Sequence[str], **_options: object) -> Completed:
        return Completed(tuple(argv), 1, "", "ModuleNotFoundError")

    monkeypatch.setattr(process, "run", fails)
    fix = r"pip install 'utvm-deploy\[zephyr\]', or pip install -r .*requirements-base\.txt"
    with pytest.raises(MissingTool, match=fix):
        find_zephyr()


def test_a_python_must_import_what_this_releases_build_does(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[str] = []

    def run(argv: Sequence[str], **_options: object) -> Completed:
        trials.append(argv[-1])
        return Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(process, "run", run)
    find_zephyr()
    (tree / "scripts").mkdir()
    # As in 3.7.1.
    script = "import yaml\nimport pykwalify.core\nfrom pathlib import Path\n# jsonschema\n"
    (tree / "scripts" / "zephyr_module.py").write_text(script)
    find_zephyr()
    assert [("west" in one, "pykwalify" in one, "jsonschema" in one) for one in trials] == [
        (True, False, False),
        (True, True, False),
    ]


def test_the_extra_brings_what_a_build_of_zephyr_imports() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["zephyr"]]
    names = {re.split(r"[><=; ]", one)[0].lower() for one in wanted}
    packages = {"elftools": "pyelftools", "yaml": "pyyaml"}
    modules = (*zephyr_build._PYTHON_MODULES, "pykwalify")
    assert {packages.get(module, module) for module in modules} <= names


@pytest.mark.parametrize("name", ["qemu_x86", "nucleo_f746zg"])
def test_doctor_names_west(name: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row() -> Check:
        (found,) = [check for check in installed_checks(load_board(name)) if check.what == "west"]
        return found

    monkeypatch.setattr(process, "run", lambda argv, **_: Completed(tuple(argv), 0, "1.5.0", ""))
    assert row().found is None and row().fix == "pip install 'utvm-deploy[zephyr]'"
    west = tree.parent / "tools" / "west"
    west.write_text("#!/bin/sh\n")
    west.chmod(0o755)
    assert row().found == "1.5.0"


def test_a_python_that_has_the_packages_is_found(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_ours(argv: Sequence[str], **_options: object) -> Completed:
        return Completed(tuple(argv), 0 if argv[0] == sys.executable else 1, "", "")

    monkeypatch.setattr(process, "run", only_ours)
    found = find_zephyr()
    assert (found.python, found.version) == (sys.executable, "3.7.1")


def test_a_python_too_old_for_the_release_is_passed_over(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree / "cmake" / "modules"
    folder.mkdir(parents=True)
    (folder / "python.cmake").write_text("set(PYTHON_MINIMUM_REQUIRED 9.12)\n")
    monkeypatch.setattr("utvm_deploy.project.zephyr_build._PYTHON_MODULES", ("json",))
    with pytest.raises(MissingTool, match=r"for a Python 9\.12 or newer"):
        find_zephyr()
    (folder / "python.cmake").write_text("set(PYTHON_MINIMUM_REQUIRED 3.10)\n")
    assert find_zephyr().python == sys.executable


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "warning: HW_X was assigned 'y' but got 'n'.\n\n"
            "warning: the int symbol X (defined at a:1)\nhas bad value\n\n"
            "error: Aborting due to Kconfig warnings\n",
            "warning: the int symbol X (defined at a:1) has bad value",
        ),
        (
            "-- Found Python\nCMake Error at toolchain.cmake:21 (message):\n"
            "  no compiler for Arm: install it\n\nCall Stack\n",
            "CMake Error at toolchain.cmake:21 (message): no compiler for Arm: install it",
        ),
        ("[1/2] CC\nmain.c:3:5: error: 'x' undeclared\nninja: stopped\n", "main.c:3:5: error: 'x'"),
        ("nothing of use", "status 1"),
    ],
)
def test_the_reason_is_found_in_the_output(output: str, expected: str) -> None:
    assert reason(Completed(("cmake",), 1, output, "")).startswith(expected)


def test_the_examples_samples_are_the_held_out_ones() -> None:
    """examples/zephyr_digits/src/samples.h is what its script writes."""
    folder = data_dir("models").parent / "examples" / "zephyr_digits"
    namespace: dict[str, object] = {"__file__": str(folder / "make_samples.py"), "__name__": "made"}
    exec(compile((folder / "make_samples.py").read_text(), "make_samples.py", "exec"), namespace)
    make = namespace["samples_header"]
    assert callable(make)
    assert make() == (folder / "src" / "samples.h").read_text()


def test_doctor_says_what_is_wrong_with_zephyr(
    tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def row(board: str) -> Check:
        return next(
            check for check in installed_checks(load_board(board)) if check.what == "Zephyr"
        )

    monkeypatch.setattr(process, "run", lambda argv, **_options: Completed(tuple(argv), 0, "", ""))
    assert row("qemu_x86").found == "3.7.1"
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path / "nowhere"))
    assert not row("qemu_x86").ok and "no Zephyr tree" in row("qemu_x86").fix
    monkeypatch.delenv("ZEPHYR_BASE")
    assert not row("qemu_x86").ok and "set ZEPHYR_BASE" in row("qemu_x86").fix
    # Bare metal is the default there.
    assert row("mps2_an385").ok
