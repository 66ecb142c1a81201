"""Where each file of a bundle lies, for each build system that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True)
class Layout:
    """One format: its folders and what the README says of its use.

    ``@NAME@`` in a path stands for the model's prefix.
    """

    include_dir: str
    source_dir: str
    selftest_dir: str
    example: str
    example_template: str
    usage: str
    # Templates that only this format has, at the same path in the bundle.
    extra: tuple[str, ...] = ()
    # Lines of CMakeLists.txt before all others.
    cmake: str = ""
    # Whether the build system has a way to name a library that the bundle does not hold.
    takes_library: bool = True
    # What the build system calls the library.
    library: str = "@NAME@"
    # Whether it has modules for browsers, and a page, in place of sources.
    is_for_browsers: bool = False
    # Whether its users can push rows of an input, and prepare a backend.
    calls_all: bool = True
    # In addition to .zip: an archive of the build system, without a folder around its files.
    archive: str = ""


_CMAKE_USAGE = """\
    add_subdirectory(@NAME@)  # this folder, under whatever name
    target_link_libraries(firmware PRIVATE @NAME@)"""

_PLAIN = Layout(
    include_dir="include",
    source_dir="src",
    selftest_dir="selftest",
    example="example/main.c",
    example_template="example.c.in",
    usage=_CMAKE_USAGE,
)

_ESP_IDF_CMAKE = """
if(ESP_PLATFORM)
    include(${CMAKE_CURRENT_LIST_DIR}/esp_idf.cmake)
    return()
endif()
"""
_ESP_IDF_USAGE = """\
    cp -r @NAME@ my_project/components/@NAME@

The component `main` sees it then; others say `REQUIRES @NAME@`, which is the folder's name. Give
the task that runs the model its stack, such as by `CONFIG_ESP_MAIN_TASK_STACK_SIZE`. Under
*Component config*, `idf.py menuconfig` puts the kernels or the weights into internal RAM.

`examples/selftest` is an application with the self-test, which also prints the cycles of one run.
`set-target` takes the name of your chip. Build in a copy, because ESP-IDF writes files there:

    cp -r my_project/components/@NAME@ @NAME@_selftest
    cd @NAME@_selftest/examples/selftest
    idf.py set-target esp32c3 && idf.py flash monitor"""

_CMSIS_PACK_USAGE = """\
    cpackget add utvm.@NAME@.@VERSION@.pack

or `cpackget add utvm.@NAME@.pdsc`, if this is a folder. In the csolution project:

    packs:
      - pack: utvm::@NAME@
    components:
      - component: Machine Learning:Network:@NAME@

The component `Machine Learning:Network:@NAME@ selftest` adds the self-test."""

_RUST_USAGE = """\
    [dependencies]
    @NAME@ = { path = "@NAME@" }

The crate is `no_std`, has no dependencies, and is for Rust 1.63 and newer. `build.rs` compiles the
C for the target, by the compiler in `CC_<target>`, `TARGET_CC` or `CC`; otherwise by `cc`, or by
the usual cross compiler of bare targets.

    let mut arena = @NAME@::Arena::new(); // or a static
@RUST_POOLS_MADE@    let mut model = @NAME@::Model::new(&mut arena@RUST_POOL_GIVEN@);
    let output = model.run(@RUST_GIVEN@);

On this computer, `cargo test --offline --target-dir ../@NAME@-target` runs the self-test."""

#: For kernels with vector instructions of RISC-V.
VECTORS_USAGE = """\
The chip must have the vector instructions Zve32x, with registers of at least 128 bits (VLEN). Your
start-up code must turn them on (`mstatus.VS`), and an operating system must keep these registers
for the task that runs the model. GCC and Clang for 32 bits compile the vector instructions with any
`-march`: `-march=@ISA@` is enough. Their assembler must know `.option arch`: Clang 19 does,
Clang 14 does not. For a chip without them, define `UTVM_NO_VECTORS` for the sources: the same bytes
from plain C, but many times slower.

"""

FORMATS: Mapping[str, Layout] = MappingProxyType(
    {
        "cmake": _PLAIN,
        "zephyr": replace(
            _PLAIN,
            usage="""\
    west build -- -DEXTRA_ZEPHYR_MODULES=/path/to/@NAME@

and `CONFIG_@UPPER@=y` in `prj.conf`.""",
            extra=("zephyr/module.yml", "zephyr/Kconfig", "zephyr/CMakeLists.txt"),
        ),
        "platformio": replace(
            _PLAIN,
            usage="Copy this folder into your project's `lib/`; then `#include <@NAME@.h>`.",
            extra=("library.json",),
            takes_library=False,
        ),
        "esp-idf": replace(
            _PLAIN,
            example="examples/selftest/main/main.c",
            example_template="esp_idf_main.c.in",
            usage=_ESP_IDF_USAGE,
            extra=(
                "idf_component.yml",
                "esp_idf.cmake",
                "Kconfig",
                "examples/selftest/CMakeLists.txt",
                "examples/selftest/sdkconfig.defaults",
                "examples/selftest/main/CMakeLists.txt",
            ),
            cmake=_ESP_IDF_CMAKE,
            takes_library=False,
            library="${COMPONENT_LIB}",
        ),
        # Firmware, whose files are not those of a library: see mlperf_tiny.py.
        "mlperf-tiny": replace(_PLAIN, takes_library=False),
        # The Arduino IDE compiles everything in src/ and looks at nothing in extras/.
        "arduino": Layout(
            include_dir="src",
            source_dir="src",
            selftest_dir="extras/selftest",
            example="examples/@NAME@/@NAME@.ino",
            example_template="example.ino",
            usage="Install this folder, or its .zip, as a library; then `#include <@NAME@.h>`.",
            extra=("library.properties",),
            takes_library=False,
        ),
        "wasm": replace(_PLAIN, takes_library=False, is_for_browsers=True),
        "cmsis-pack": replace(
            _PLAIN,
            usage=_CMSIS_PACK_USAGE,
            extra=("utvm.@NAME@.pdsc",),
            takes_library=False,
            archive=".pack",
        ),
        # Cargo has Rust in src/ and in tests/.
        "rust": replace(
            _PLAIN,
            source_dir="c",
            usage=_RUST_USAGE,
            extra=("Cargo.toml", "Cargo.lock", "build.rs", "src/lib.rs", "tests/selftest.rs"),
            takes_library=False,
            calls_all=False,
        ),
    }
)
