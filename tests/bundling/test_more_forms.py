"""Bundles for Cargo and for CMSIS-Toolbox: a Rust crate without std, and a pack."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bundle_cases import Case, make_state_case, write
from test_bundle_rows import make_rows_case

from utvm_deploy.base.errors import BundleError
from utvm_deploy.bundling import check_bundle

#: The order of elements that PACK.xsd asks for, of those that a bundle has.
ORDER = ["vendor", "name", "description", "url", "releases"]
MORE = ["taxonomy", "conditions", "components"]


def test_a_pack_lists_files_that_it_has(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path / "utvm.net.0.0.0.pack", format="cmsis-pack")
    check_bundle(path)
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        root = ElementTree.fromstring(archive.read("utvm.net.pdsc"))
    assert [child.tag for child in root] == ORDER + MORE
    assert (root.findtext("vendor"), root.findtext("name")) == ("utvm", "net")
    files = [file.get("name") for file in root.iter("file")]
    assert set(files) <= names and len(files) == len(set(files))
    # All C of the model is in one component, and the self-test in another one that requires it.
    network, selftest = root.iter("component")
    sources = {one.get("name") for one in network.iter("file") if one.get("category") == "sourceC"}
    assert sources == {name for name in names if name.startswith("src/") and name.endswith(".c")}
    condition = root.find("./conditions/condition")
    assert condition is not None and condition.get("id") == selftest.get("condition")
    required = condition.find("require")
    assert required is not None
    assert dict(required.items()).items() <= dict(network.items()).items()
    # A changed byte is found there, too.
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError):
        check_bundle(path)


def test_a_crate_has_types_of_the_model(tmp_path: Path, case: Case) -> None:
    text = (write(case, tmp_path / "a", format="rust") / "src" / "lib.rs").read_text()
    assert "pub type Input0 = [[[[i8; 2]; 6]; 6]; 1];" in text
    assert "pub fn run(&mut self, input_0: &Input0) -> (&Output0, &Output1) {" in text
    assert "pub fn reset" not in text and "pool_dtcm: &'a mut PoolDtcm" in text
    readme = (tmp_path / "a" / "README.md").read_text()
    assert "    let mut pool_dtcm = net::PoolDtcm::new();\n" in readme
    state = write(make_state_case(tmp_path, "host"), tmp_path / "b", format="rust")
    text = (state / "src" / "lib.rs").read_text()
    assert "model.reset();" in text and "pub fn reset(&mut self)" in text


def test_rows_are_refused(tmp_path: Path) -> None:
    others = "cmake, zephyr, platformio, esp-idf, arduino, cmsis-pack$"
    with pytest.raises(BundleError, match=f"such backends out, or choose one of {others}"):
        write(make_rows_case(tmp_path, "host"), tmp_path / "a", format="rust")


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: sudo apt install {name}")
    return found


@pytest.mark.tools
def test_cargo_runs_the_golden_vectors(case: Case, tmp_path: Path) -> None:
    cargo = program("cargo")
    crate = write(case, tmp_path / "net", format="rust")
    argv = [cargo, "test", "--offline", "--target-dir", str(tmp_path / "target")]
    done = subprocess.run(
        argv,
        cwd=crate,
        env={**os.environ, "CARGO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "warning" not in done.stderr
    check_bundle(crate)  # which Cargo left as it was


@pytest.mark.tools
def test_the_compiler_gets_the_options_of_the_target(case: Case, tmp_path: Path) -> None:
    rustc = program("rustc")
    crate = write(case, tmp_path / "net", format="rust")
    build = tmp_path / "build"

    def compile_script(source: Path) -> None:
        subprocess.run([rustc, "--edition", "2021", source, "-o", build], check=True)

    compile_script(crate / "build.rs")
    log = tmp_path / "log"
    compiler = tmp_path / "some-gcc"
    compiler.write_text(f'#!/bin/sh\necho "$0 $@" >> {log}\n')
    compiler.chmod(0o755)
    (tmp_path / "some-ar").symlink_to(compiler)

    def options(target: str) -> str:
        log.write_text("")
        env = {
            "PATH": os.environ["PATH"],
            "TARGET": target,
            "CARGO_MANIFEST_DIR": str(crate),
            "OUT_DIR": str(tmp_path),
            "TARGET_CC": str(compiler),
        }
        done = subprocess.run([build], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr
        lines = log.read_text().splitlines()
        # Four sources, and the archive by the program beside the compiler.
        assert len(lines) == 5 and lines[-1].startswith(str(tmp_path / "some-ar crs"))
        assert "cargo:rustc-link-lib=static=net_c" in done.stdout
        return lines[0]

    own = options("thumbv7em-none-eabihf")
    assert "-mcpu=cortex-m7 -mthumb -mfpu=fpv5-sp-d16 -mfloat-abi=hard -ffreestanding" in own
    assert "-std=c99 -O3" in own
    assert "-mcpu=cortex-m7 -mthumb -mfloat-abi=soft" in options("thumbv7em-none-eabi")
    # Another core gets its own options, and plain C of the same bytes.
    assert "-mcpu=cortex-m0 -mthumb -mfloat-abi=soft" in options("thumbv6m-none-eabi")
    assert "-mfpu=fpv5-sp-d16 -mfloat-abi=hard" in options("thumbv8m.main-none-eabihf")
    assert "-march=rv32imc -mabi=ilp32" in options("riscv32imc-unknown-none-elf")
    assert " -fPIC " in options("x86_64-unknown-linux-gnu")
    assert "does not know the target thumbv9-none" in options("thumbv9-none-eabi")
    # As for a chip without a floating-point unit.
    (tmp_path / "soft.rs").write_text(
        (crate / "build.rs").read_text().replace('-mfloat-abi=hard"]', '-mfloat-abi=soft"]')
    )
    compile_script(tmp_path / "soft.rs")
    assert "without a floating-point unit" in options("thumbv7em-none-eabihf")
    compiler.unlink()
    assert "net: cannot run " in options("thumbv6m-none-eabi")
