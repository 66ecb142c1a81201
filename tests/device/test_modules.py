"""Modules on every board: code in RAM that calls the image, itself and the C library."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import BuildError, CompileError, DeviceError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.kernels.portable.movement import Copy

SUM = """
#include <stdint.h>
#include <string.h>

uint32_t utvm_crc32(uint32_t crc, const void *data, uint32_t size);

int32_t calls = 40;
int32_t zeros[300];
const int32_t table[] = {1, 10, 100, 1000};
static int32_t (*const steps[])(int32_t);

void crc(const void *data, uint32_t size, uint32_t *out) { *out = utvm_crc32(0, data, size); }
void copy(void *to, const void *from, uint32_t size) { memcpy(to, from, size); }
void move(void *to, const void *from, uint32_t size) { memmove(to, from, size); }
void divide(int64_t *x, int32_t by) { *x /= by; }
void dot(const int32_t *x, int32_t *out) {
    *out = calls++ + zeros[299]++;
    for (int i = 0; i < 4; i++) *out += x[i] * table[i];
}
static int32_t add_one(int32_t x) { return x + 1; }
static int32_t negate(int32_t x) { return -x; }
static int32_t (*const steps[])(int32_t) = {add_one, negate};
void apply(int32_t *x, int32_t step) { *x = steps[step](*x); }
void many(int32_t *out, int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k)
{
    int all[] = {a, b, c, d, e, f, g, h, i, j, k};
    memcpy(out, all, sizeof all);
}
"""


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.spread(2, among=("netduinoplus2", "mps3_an547"))
def test_everything_a_module_can_do(device: Device) -> None:
    module = device.load_module(SUM, name="sum")
    assert {"crc", "copy", "divide", "dot", "apply", "many"} <= set(module)
    assert "add_one" not in module

    # A function of the image, far away, and one of its C library.
    data = device.tensor(np.arange(250, dtype=np.uint8), name="data")
    out = device.empty(1, np.uint32)
    module["crc"](data, 250, out)
    assert out.numpy()[0] == zlib.crc32(bytes(range(250)))
    copied = device.empty(250, np.uint8)
    module["copy"](copied, data, 249)
    module["move"](copied.address + 2, copied, 248)
    assert bytes(copied.numpy()) == bytes((0, 1, *range(248)))

    # The compiler's own helper functions.
    big = device.tensor(np.array([-(10**15)], np.int64))
    module["divide"](big, -1000)
    assert big.numpy()[0] == 10**12

    # Variables with and without a value, constants, pointers to functions.
    x, y = device.tensor(int32(5, 6, 7, 8)), device.empty(1, np.int32)
    module["dot"](x, y)
    assert y.numpy()[0] == 40 + 0 + 8765
    module["dot"](x, y)
    assert y.numpy()[0] == 41 + 1 + 8765
    assert device.read(module.address("calls"), 4) == (42).to_bytes(4, "little")
    module["apply"](y, 0)
    module["apply"](y, 1)
    assert y.numpy()[0] == -8808

    # All words arrive, signs included.
    all_words = device.empty(11, np.int32)
    module["many"](all_words, *range(-5, 5), -(1 << 31))
    np.testing.assert_array_equal(all_words.numpy(), int32(*range(-5, 5), -(1 << 31)))

    # A second module beside it, with functions of the same names.
    other = device.load_module("void dot(const int *x, int *out) { *out = x[0]; }", name="other")
    other["dot"](x, y)
    module["dot"](x, out)
    assert (y.numpy()[0], out.numpy()[0]) == (5, 42 + 2 + 8765)

    # Unloaded memory is used again, and its caches do not remember.
    place = module["dot"].address
    module.unload()
    again = device.load_module(SUM.replace("calls = 40", "calls = 50"), name="again")
    assert again["dot"].address == place
    again["dot"](x, y)
    assert y.numpy()[0] == 50 + 0 + 8765
    with pytest.raises(DeviceError, match="module 'sum' was unloaded; load it again"):
        module["dot"](x, y)


@pytest.mark.spread(1, among=("mps2_an386",))
def test_kernels_as_modules(device: Device) -> None:
    with device.load_kernels([Copy(5, "int8", "int8")]) as module:
        (name,) = module
        x, y = device.tensor(np.arange(-2, 3, dtype=np.int8)), device.empty(5)
        module[name](x, y)
        np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_working_memory_of_kernels_comes_with_the_module(host: Device) -> None:
    from tvm import te

    source = te.placeholder((300,), "int32", "source")
    doubled = te.compute((300,), lambda i: source[i] * 2, "doubled")
    turned = te.compute((300,), lambda i: doubled[299 - i] + 1, "turned")
    func = te.create_prim_func([source, turned])
    free = host.session.memory.free_bytes if host.hello else 0
    module = host.load_kernels({"turn": func, "again": func}, name="turning")
    assert list(module) == ["again", "turn"]
    x, y = host.tensor(np.arange(300, dtype=np.int32)), host.empty(300, np.int32)
    for name in module:
        call = module[name](x, y)
        np.testing.assert_array_equal(y.numpy(), np.arange(300)[::-1] * 2 + 1)
        # The third argument is ours.
        assert call.text == f"{name}(int32[300], int32[300], scratch0)"
    for thing in (x, y):
        thing.free()
    module.unload()
    # All but what the session keeps to report on red zones.
    assert free - host.session.memory.free_bytes == 96
    with pytest.raises(CompileError, match="the same name"):
        host.load_kernels([Copy(5, "int8", "int8"), Copy(5, "int8", "int8")])


@pytest.mark.spread(2, among=("mps2_an500", "mps2_an385"))
def test_a_model_in_ram(device: Device, digits: Callable[[Board], CompiledModel]) -> None:
    held_out = np.load(data_dir("models") / "digits_test.npz")
    before = device.image.elf
    model = device.load(digits(device.board), into="ram")
    for x, y in zip(held_out["inputs"][:3], held_out["outputs"][:3], strict=True):
        np.testing.assert_array_equal(model(x), y)
    assert device.image.elf == before
    model.unload()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("void g(void); void h(void); void f(void) { g(); h(); }", "uses g, h, which neither"),
        ("int f(void) { return g(); }", "bad.c:1:22: error: implicit declaration of function"),
        ("int x; __attribute__((constructor)) void f(void) { x = 1; }", "has a constructor"),
        ("__thread int x; int f(void) { return x; }", "has a thread-local variable"),
        ("nowhere.c", "'nowhere.c' of module 'bad' cannot be read"),
        ({"a.h": "int a;"}, "nothing to compile"),
        ({"a.c": "int f = 1;", "b.c": "int f = 2;"}, "multiple definition of `f'"),
        ({"../a.c": "int f;"}, "not a file name within the module"),
    ],
)
def test_sources_that_make_no_module(host: Device, source: object, says: str) -> None:
    with pytest.raises(BuildError) as caught:
        host.load_module(source, name="bad")  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert host.session.memory.free_bytes == host.session.memory.size


def test_every_form_of_sources(host: Device, tmp_path: Path) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    source = tmp_path / "one.c"
    source.write_text('#include "value.h"\nvoid one(int *x) { *x = VALUE; }\n')
    x = host.empty(1, np.int32)

    def value(module: utvm_deploy.device.Module, name: str) -> int:
        module[name](x)
        return int(x.numpy()[0])

    assert value(host.load_module(source), "one") == 1
    assert value(host.load_module(str(source)), "one") == 1
    # What is included counts, too, though the file itself is the same.
    (tmp_path / "value.h").write_text("#define VALUE 2\n")
    two = "void two(int *x) { *x = 22; }"
    both = host.load_module([source, two])
    assert (value(both, "one"), value(both, "two")) == (2, 22)
    files = {"three.c": '#include "n.h"\nvoid three(int *x) { *x = N; }', "n.h": "#define N 3\n"}
    assert value(host.load_module(files), "three") == 3
    flagged = host.load_module("void four(int *x) { *x = FOUR; }", flags=["-DFOUR=4"])
    assert value(flagged, "four") == 4


def test_a_wrong_name_gets_a_suggestion(host: Device) -> None:
    module = host.load_module("int v; void conv2d(void) {} void pool(void) {}", name="net")
    with pytest.raises(DeviceError) as caught:
        module["conv2"]
    assert str(caught.value) == "module 'net' has no function 'conv2'; did you mean 'conv2d'?"
    with pytest.raises(DeviceError, match="it has conv2d, pool"):
        module["zzz"]
    with pytest.raises(DeviceError, match="no symbol 'w'"):
        module.address("w")
    with pytest.raises(DeviceError, match="has no symbol 'nothing'"):
        host.call("nothing")


@pytest.mark.spread(1, among=("netduinoplus2",))
def test_no_room_for_a_module(device: Device) -> None:
    hello = device.hello
    big = f"char big[{hello.workspace_size}]; void f(void) {{ big[0] = 1; }}"
    with pytest.raises(DeviceError, match=r"no room for module 'big'.* bytes are missing"):
        device.load_module(big, name="big")
    # What is left over still takes one.
    x = device.empty(1, np.int32)
    device.load_module("void f(int *x) { *x = 7; }")["f"](x)
    assert x.numpy()[0] == 7


def test_a_board_that_runs_nothing_from_ram(tmp_path: Path) -> None:
    text = (
        (data_dir("boards") / "host.toml").read_text().replace('"host"\nvendor', '"dull"\nvendor')
    )
    head, ram = text.split('name = "ram"')
    path = tmp_path / "dull.toml"
    path.write_text(head + 'name = "ram"' + ram.replace("executable = true", "executable = false"))
    with (
        utvm_deploy.connect(path) as device,
        pytest.raises(DeviceError, match=r"dull runs no code from its RAM \(region ram"),
    ):
        device.load_module("void f(void) {}")


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (1.5, "argument 1 of f is 1.5 of type float"),
        (np.zeros(3, np.int8), r"argument 1 of f is an array of shape \(3,\)"),
        (1 << 32, "argument 1 of f is 4294967296, which 32 bits do not hold"),
        (None, "of type NoneType"),
    ],
)
def test_arguments_that_cannot_be_passed(host: Device, argument: object, says: str) -> None:
    module = host.load_module("void f(int a, int b) {}")
    with pytest.raises(DeviceError, match=says):
        module["f"](0, argument)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cannot run 0 times"):
        module["f"](0, 1, repeat=0)
