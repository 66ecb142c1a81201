"""Bundles for ESP-IDF, by a stand-in for its build system: the parts of it that components see."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bundle_cases import Case, make_state_case, write
from elftools.elf.elffile import ELFFile

from utvm_deploy import __version__
from utvm_deploy.compiler.options import MODEL_STACK_BYTES

TIMEOUT_S = 120
#: As tools/cmake/project.cmake does: each component has a folder and a library of its own.
PROJECT = """\
macro(project name)
    _project(${name} C)
    set(ESP_PLATFORM 1)
    add_compile_options(-Wall -Wextra -Werror -Og)
    include_directories($ENV{IDF_PATH}/headers)
    set(components "")
    foreach(COMPONENT_DIR ${EXTRA_COMPONENT_DIRS} ${CMAKE_CURRENT_LIST_DIR}/main)
        get_filename_component(COMPONENT_NAME ${COMPONENT_DIR} NAME)
        add_subdirectory(${COMPONENT_DIR} ${CMAKE_BINARY_DIR}/${COMPONENT_NAME})
        if(components)
            target_link_libraries(${COMPONENT_NAME} PUBLIC ${components})
        endif()
        list(APPEND components ${COMPONENT_NAME})
    endforeach()
    add_executable(app $ENV{IDF_PATH}/start.c)
    target_link_libraries(app PRIVATE main)
endmacro()

function(idf_component_register)
    cmake_parse_arguments(_ "" "" "SRCS;INCLUDE_DIRS;REQUIRES" ${ARGN})
    add_library(${COMPONENT_NAME} STATIC ${__SRCS})
    target_include_directories(${COMPONENT_NAME} PUBLIC ${__INCLUDE_DIRS})
    set(COMPONENT_LIB ${COMPONENT_NAME} PARENT_SCOPE)
endfunction()
"""
#: As component_get_requirements.cmake does: a script reads the component up to its registration.
SCRIPT = """\
macro(idf_component_register)
    set(registered ${ARGN})
    return()
endmacro()

function(read)
    include(${COMPONENT}/CMakeLists.txt)
    message(STATUS "registered: ${registered}")
endfunction()
read()
"""
START = """\
void app_main(void);
int main(void) {
    app_main();
    return 0;
}
"""
HEADER = """\
#include <stdint.h>
static inline uint32_t esp_cpu_get_cycle_count(void) {
    static uint32_t count;
    return count += 7u;
}
"""

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")


@pytest.fixture
def idf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "idf"
    files = {
        "tools/cmake/project.cmake": PROJECT,
        "headers/esp_cpu.h": HEADER,
        "start.c": START,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("IDF_PATH", str(folder))


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_application(bundle: Path, built: Path, *options: str) -> str:
    """The self-test's application, built and run on this computer."""
    run("cmake", "-S", bundle / "examples" / "selftest", "-B", built, *options)
    run("cmake", "--build", built)
    return run(built / "app")


@pytest.mark.usefixtures("idf")
def test_the_application_finds_the_component(host_case: Case, tmp_path: Path) -> None:
    """Whatever its folder is called; and what Kconfig says decides where its parts are."""
    bundle = write(host_case, tmp_path / "another", format="esp-idf")
    options = [
        line.split()[1]
        for line in (bundle / "Kconfig").read_text().splitlines()
        if line.strip().startswith("config ")
    ]
    assert options == ["NET_KERNELS_IN_RAM", "NET_WEIGHTS_IN_RAM"]
    chosen = [f"-DCONFIG_{option}=y" for option in options]
    built = tmp_path / "built"
    for given, moved in (([], set[str]()), (chosen, {".iram1.net", ".dram1.net"})):
        said = run_application(bundle, built, *given)
        assert said == (
            "PASS net: 2 sample(s), every output byte equal\nnet: 7 cycles for one run\n"
        )
        sections = set()
        for path in built.rglob("net_*.c.o"):
            with path.open("rb") as file:
                sections |= {one.name for one in ELFFile(file).iter_sections()}
        assert {name for name in sections if "ram1" in name} == moved


@pytest.mark.tools
@pytest.mark.usefixtures("idf")
def test_a_model_with_state(tmp_path: Path) -> None:
    bundle = write(make_state_case(tmp_path, "host"), tmp_path / "net", format="esp-idf")
    assert run_application(bundle, tmp_path / "built").startswith("PASS net")


def test_requirements_are_read_by_a_script(host_case: Case, tmp_path: Path) -> None:
    bundle = write(host_case, tmp_path / "net", format="esp-idf")
    script = tmp_path / "script.cmake"
    script.write_text(SCRIPT)
    said = run("cmake", "-DESP_PLATFORM=1", f"-DCOMPONENT={bundle}", "-P", script)
    assert "registered: SRCS;src/net.c;src/net_kernels.c;src/net_weights.c;INCLUDE_DIRS" in said


def test_what_describes_the_component(host_case: Case, tmp_path: Path) -> None:
    bundle = write(host_case, tmp_path / "net", format="esp-idf")
    described = (bundle / "idf_component.yml").read_text()
    assert f'version: "{__version__}"\n' in described
    defaults = (bundle / "examples" / "selftest" / "sdkconfig.defaults").read_text()
    stack = re.fullmatch(r"CONFIG_ESP_MAIN_TASK_STACK_SIZE=(\d+)\n", defaults)
    assert stack and int(stack[1]) >= 3584 + MODEL_STACK_BYTES + host_case.compiled.stack_bytes
    assert "idf.py set-target" in (bundle / "README.md").read_text()
