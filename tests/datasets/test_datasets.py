"""Datasets as people's tools write them, and what is said of those that do not fit."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.model import Quantization
from utvm_deploy.quality.datasets import Dataset, ModelInput, dataset_of_arrays, load_dataset

IMAGE = ModelInput("image", (1, 4, 4, 1), "int8", Quantization((0.5,), (-3,)))
FLOATS = ModelInput("image", (1, 4, 4, 1), "float32")
ROW = ModelInput("row", (1, 3), "float32")
RNG = np.random.default_rng(7)
BYTES = RNG.integers(-128, 128, (6, 4, 4, 1), np.int8)
REALS = RNG.normal(size=(6, 4, 4, 1)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0, 2])
INFINITE = np.array([1, 1, 1, np.inf, 1, 1])[:, None] * np.sign(REALS[:, 0, 0])


def whole(data: Dataset) -> np.ndarray[Any, Any]:
    """All samples, read in two batches."""
    (first,), (rest,) = data.batch(0, 4), data.batch(4, len(data))
    assert first.shape[0] == 4
    return np.concatenate([first, rest])


@pytest.mark.parametrize("shape", [(6, 4, 4, 1), (6, 1, 4, 4, 1)])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_npz(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    given = (BYTES if dtype == "int8" else REALS).astype(dtype)
    np.savez_compressed(tmp_path / "d.npz", inputs=given.reshape(shape), labels=LABELS)
    data = load_dataset(tmp_path / "d.npz", (IMAGE,))
    found = whole(data)
    assert (len(data), data.origin) == (6, "of d.npz")
    assert found.dtype == (np.int8 if dtype == "int8" else np.float32)
    assert np.array_equal(found.reshape(given.shape), given.astype(found.dtype))
    assert data.labels is not None and data.labels.tolist() == LABELS.tolist()
    assert data.targets is None and data.class_names is None
    cut = data.spread(3)
    assert len(cut) == 3 and cut.labels is not None and cut.labels.tolist() == [0, 1, 0]
    assert cut.positions is not None and cut.positions.tolist() == [0, 2, 4]
    assert np.array_equal(cut.batch(1, 9)[0], found[[2, 4]])


def test_inputs_by_name() -> None:
    rows = RNG.normal(size=(6, 3))
    data = dataset_of_arrays({"row": rows, "image": REALS, "targets": rows[:, :2]}, (IMAGE, ROW))
    image, row = data.batch(0, 6)
    assert image.shape == (6, 1, 4, 4, 1) and row.shape == (6, 1, 3)
    assert data.targets is not None and np.array_equal(data.targets, rows[:, :2])


def test_inputs_by_the_names_that_keras_had() -> None:
    inputs = tuple(ModelInput(f"serving_default_{one}:0", (1, 3), "float32") for one in "ab")
    arrays = {one: np.full((2, 3), place, np.float32) for place, one in enumerate("ab")}
    found = dataset_of_arrays(arrays, inputs)
    assert [float(array.max()) for array in found.batch(0, 2)] == [0.0, 1.0]


@pytest.mark.parametrize("role", ["labels", "targets"])
def test_npy_with_answers_beside_it(tmp_path: Path, role: str) -> None:
    np.save(tmp_path / "x.npy", REALS)
    np.save(tmp_path / f"x_{role}.npy", LABELS[:, None])
    data = load_dataset(tmp_path / "x.npy", (FLOATS,))
    assert np.array_equal(whole(data).reshape(REALS.shape), REALS)
    assert (data.labels is None) == (role == "targets")
    np.save(tmp_path / "other.npy", LABELS[::-1])
    data = load_dataset(tmp_path / "x.npy", (FLOATS,), labels=tmp_path / "other.npy")
    assert data.labels is not None and data.labels.tolist() == LABELS[::-1].tolist()


@pytest.mark.parametrize("kind", ["U", "S"])
def test_numbers_as_text_are_classes(kind: str) -> None:
    numbers = [10, 2, 0, 11, 2, 10]
    texts = np.array(list(map(str, numbers)), kind)
    found = dataset_of_arrays({"inputs": REALS, "labels": texts}, (FLOATS,))
    assert found.labels is not None and found.labels.tolist() == numbers
    assert found.class_names is None


def test_names_as_bytes() -> None:
    names = np.array([b"cat", b"\xff", "k\u00fche".encode()] * 2)
    found = dataset_of_arrays({"inputs": REALS, "labels": names}, (FLOATS,))
    assert found.class_names == ("\\xff", "cat", "k\u00fche")


def test_one_hot_and_names() -> None:
    one_hot = dataset_of_arrays({"inputs": REALS, "labels": np.eye(3)[LABELS]}, (FLOATS,))
    assert one_hot.labels is not None and one_hot.labels.tolist() == LABELS.tolist()
    names = np.array(["cat", "dog", "cow"])[LABELS]
    named = dataset_of_arrays({"inputs": REALS, "labels": names}, (FLOATS,))
    assert named.class_names == ("cat", "cow", "dog")
    assert named.labels is not None and named.labels.tolist() == [0, 1, 2, 2, 0, 1]


@pytest.mark.parametrize(
    ("cells", "labels", "targets", "names"),
    [
        (["0", "2", "1"], [0, 2, 1], None, None),
        (["0.5", "2", "-1"], None, [0.5, 2.0, -1.0], None),
        (["yes", "no", "yes"], [1, 0, 1], None, ("no", "yes")),
    ],
)
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_csv(
    tmp_path: Path, cells: list[str], labels: Any, targets: Any, names: Any, start: str
) -> None:
    path = tmp_path / "d.csv"
    with path.open("w", newline="") as file:
        file.write(start)
        writer = csv.writer(file)
        writer.writerow(["a", "b", "target", "c"])
        writer.writerows([1, 2.5, cell, -3e2] for cell in cells)
    data = load_dataset(path, (ROW,))
    assert data.batch(0, 3)[0].tolist() == [[[1.0, 2.5, -300.0]]] * 3
    assert (None if data.labels is None else data.labels.tolist()) == labels
    assert (None if data.targets is None else data.targets.tolist()) == targets
    assert data.class_names == names


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for place, name in enumerate(("dog", "cat")):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", REALS[place])
        REALS[2 + place].tofile(tmp_path / name / "b.bin")
        np.savetxt(tmp_path / name / "c.csv", REALS[4 + place].reshape(4, 4), delimiter=",")
    (tmp_path / "dog" / ".hidden").write_text("not a sample")
    data = load_dataset(tmp_path, (IMAGE,))
    assert data.class_names == ("cat", "dog")
    assert data.labels is not None and data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.allclose(whole(data)[:, 0], REALS[[1, 3, 5, 0, 2, 4]])


def test_folders_named_by_numbers_keep_them(tmp_path: Path) -> None:
    for name in ("2", "10"):
        (tmp_path / name).mkdir()
        BYTES[0].tofile(tmp_path / name / "a.bin")
    data = load_dataset(tmp_path, (IMAGE,), raw_type="int8")
    assert data.labels is not None and data.labels.tolist() == [2, 10]
    assert np.array_equal(data.batch(0, 2)[0][1, 0], BYTES[0])


def test_bytes_without_a_sign_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    BYTES[0].tofile(tmp_path / "cat" / "a.bin")
    data = load_dataset(tmp_path, (IMAGE,))
    with pytest.raises(DataError, match=r"a\.bin holds 16 raw bytes .* give --raw-type int8, or"):
        data.batch(0, 1)


def test_mlperf_images(tmp_path: Path) -> None:
    pixels = (BYTES.astype(int) + 128).astype(np.uint8)
    for place in range(6):
        pixels[place].tofile(tmp_path / f"{place}.bin")
    rows = [f"{place}.bin, 3, {label}" for place, label in enumerate(LABELS)]
    (tmp_path / "y_labels.csv").write_text("\n".join(rows))
    data = load_dataset(tmp_path, (IMAGE,), raw_type="uint8")
    assert np.array_equal(whole(data)[:, 0], BYTES)
    assert data.labels is not None and data.labels.tolist() == LABELS.tolist()
    assert data.groups is None


def test_mlperf_windows(tmp_path: Path) -> None:
    first, second = RNG.normal(size=7).astype("<f4"), RNG.normal(size=6).astype("<f4")
    first.tofile(tmp_path / "first.bin")
    second.tofile(tmp_path / "second.bin")
    (tmp_path / "y_labels.csv").write_text("first.bin,2,1,12,8\nsecond.bin,2,0,12,8\n")
    data = load_dataset(tmp_path, (ROW,))
    assert data.labels is not None and data.labels.tolist() == [1, 1, 1, 0, 0]
    assert data.groups is not None and data.groups.tolist() == [0, 0, 0, 1, 1]
    expected = [first[0:3], first[2:5], first[4:7], second[0:3], second[2:5]]
    assert np.array_equal(whole(data)[:, 0], np.array(expected))
    cut = data.spread(1)
    assert cut.groups is not None and cut.groups.tolist() == [0, 0, 0]


def with_nan(place: int) -> np.ndarray[Any, Any]:
    found = REALS.copy()
    found[place, 1, 1, 0] = np.nan
    return found


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"inputs": BYTES.view(np.uint8)}, "is uint8, and input 'image' takes int8, or floats"),
        ({"inputs": REALS.astype(np.complex128)}, "is complex128"),
        ({"inputs": REALS[:, :3]}, "has samples of shape (3, 4, 1)"),
        ({"inputs": REALS.transpose(0, 3, 1, 2)}, "only axes of 1 differ: give"),
        ({"inputs": REALS.reshape(6, 16)}, "reshape each sample to (1, 4, 4, 1) or (4, 4, 1)"),
        ({"inputs": REALS[..., 0]}, "only axes of 1 differ: give array.reshape(-1, 4, 4, 1)"),
        ({"inputs": REALS[..., None]}, "only axes of 1 differ: give array.reshape(-1, 4, 4, 1)"),
        ({"inputs": REALS[:0]}, "holds no sample"),
        ({"inputs": np.float32(1)}, "single number"),
        ({"x": REALS, "y": REALS}, "holds x, y, and no array 'inputs' (or 'image')"),
        ({"inputs": REALS, "labels": LABELS[:5]}, "has 5 for 6 samples"),
        ({"inputs": REALS, "labels": LABELS - 1}, "holds -1; classes are counted from 0"),
        ({"inputs": REALS, "labels": LABELS + 0.5}, "for regression, name them 'targets'"),
        ({"inputs": REALS, "labels": np.ones((6, 3))}, "rows with a single 1"),
        ({"inputs": REALS, "targets": REALS[:, 0, 0] * INFINITE}, "holds inf for sample 3"),
        ({"inputs": with_nan(5)}, "sample 5, holds nan"),
        ({"inputs": REALS.astype(float) * 1e39}, "sample 0, holds"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        whole(dataset_of_arrays(arrays, (IMAGE,)))


def test_samples_with_their_channels_in_front_are_told_to_be_transposed() -> None:
    colours = ModelInput("image", (1, 4, 5, 3), "float32")
    first, last = np.zeros((2, 3, 4, 5), np.float32), np.zeros((2, 4, 5, 3), np.float32)
    said = (
        r"its channels come first \(NCHW\), and those of the model last.*axis\(array, -3, -1\), or"
    )
    with pytest.raises(DataError, match=said):
        dataset_of_arrays({"inputs": first}, (colours,))
    planes = ModelInput("image", (1, 3, 4, 5), "float32")
    with pytest.raises(DataError, match=r"its channels come last \(NHWC\).* --input nhwc"):
        dataset_of_arrays({"inputs": last}, (planes,))
    with pytest.raises(DataError, match="the axes are in another order: transpose the array"):
        dataset_of_arrays({"inputs": np.zeros((2, 5, 4, 3), np.float32)}, (colours,))


def test_inputs_of_different_lengths() -> None:
    with pytest.raises(DataError, match="different numbers of samples: 5, 6;"):
        dataset_of_arrays({"image": REALS, "row": np.ones((5, 3))}, (IMAGE, ROW))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b,c,target\n", "holds no sample"),
        ("1,2,3,4\n5,6,7,8\n", "has no header"),
        ("a,b,target\n1,2,0\n", "has 2 columns besides 'target'"),
        ("a,b,c,label\n1,2,3,0\n", "has 4 columns and none is 'target'"),
        ("a,b,c,target\n1,2,3,0\n1,2,3\n", "row 2, has 3 cells"),
        ("a,b,c,target\n1,,3,0\n", "row 1, column 'b' is empty"),
        ("a,b,c,target\n1,red,3,0\n", "row 1, column 'b' is 'red', which is not a number"),
        ("a,b,c,target\n1,nan,3,0\n", "row 1, column 'b' is nan; give a finite number"),
        ("a,b,c,target\n1,2,3,0\n1,2,3,\n", "is empty in row 2"),
        ("a,b,target,target\n1,2,3,4\n", "several columns 'target'"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(said)):
        load_dataset(tmp_path / "d.csv", (ROW,))


def empty(folder: Path) -> None:
    (folder / "d").mkdir()


def empty_class(folder: Path) -> None:
    (folder / "d" / "cat").mkdir(parents=True)


def a_picture(folder: Path) -> None:
    (folder / "d" / "cat").mkdir(parents=True)
    (folder / "d" / "cat" / "a.tiff").write_bytes(b"II")


def short_file(folder: Path) -> None:
    (folder / "d" / "cat").mkdir(parents=True)
    (folder / "d" / "cat" / "a.bin").write_bytes(bytes(15))


def table(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "d").mkdir()
        (folder / "d" / "a.bin").write_bytes(bytes(16))
        (folder / "d" / "y_labels.csv").write_text(text)

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (empty, "holds no folders and no y_labels.csv"),
        (empty_class, "holds no sample"),
        (a_picture, "a.tiff is not a sample"),
        (short_file, "gives 15 bytes for a sample"),
        (table("a.bin,2\n"), "row 1 is 'a.bin,2'; give file,classes,label"),
        (table("a.bin,2,2\n"), "has label 2 of 2 classes"),
        (table("a.bin,2,1,32,4\n"), "less than a window of 32 bytes"),
        (table("b.bin,2,1\n"), "b.bin: No such file"),
        (table(""), "holds no sample"),
        (lambda folder: (folder / "d").write_text("x"), "is not a dataset"),
        (lambda folder: None, "is not a dataset"),
    ],
)
def test_folders_that_do_not_fit(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    make(tmp_path)
    with pytest.raises(DataError, match=re.escape(said)):
        load_dataset(tmp_path / "d", (IMAGE,)).batch(0, 1)


@pytest.mark.parametrize("role", ["inputs", "labels"])
def test_arrays_of_python_objects_are_named(tmp_path: Path, role: str) -> None:
    arrays = {"inputs": REALS, "labels": LABELS}
    np.savez(tmp_path / "d.npz", **{**arrays, role: arrays[role].astype(object)})
    with pytest.raises(DataError, match=rf"array '{role}' of .*d\.npz holds Python objects; conv"):
        load_dataset(tmp_path / "d.npz", (FLOATS,))
    np.save(tmp_path / "d.npy", REALS.astype(object if role == "inputs" else np.float32))
    np.save(tmp_path / "d_labels.npy", LABELS.astype(object))
    name = "d.npy" if role == "inputs" else "d_labels.npy"
    with pytest.raises(DataError, match=f"{name} holds Python objects"):
        load_dataset(tmp_path / "d.npy", (FLOATS,))


def test_damaged_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", inputs=REALS)
    np.save(tmp_path / "whole.npy", REALS)
    (tmp_path / "d.csv").write_bytes(b"a,b,c\n1,2,\xff\n")
    np.savez(tmp_path / "objects.npz", inputs=np.array([None, {}], object))
    for name in ("whole.npz", "whole.npy"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name.replace("whole", "cut")).write_bytes(data[: len(data) // 2])
    npy, npz = ((tmp_path / f"whole.{kind}").read_bytes() for kind in ("npy", "npz"))
    # A header that does not end as Python; an encrypted file, and methods that nobody knows.
    (tmp_path / "header.npy").write_bytes(npy.replace(b"}", b"(", 1))
    for name, offset, value in (
        ("locked.npz", 8, 1),
        ("newer.npz", 6, 163),
        ("method.npz", 10, 99),
    ):
        place = npz.index(b"PK\x01\x02") + offset
        (tmp_path / name).write_bytes(npz[:place] + bytes([value]) + npz[place + 1 :])
    made = ("header.npy", "locked.npz", "newer.npz", "method.npz")
    for name in (*made, "cut.npz", "cut.npy", "objects.npz", "d.csv", "missing.npz"):
        one = ROW if name == "d.csv" else FLOATS
        with pytest.raises(DataError, match=name):
            load_dataset(tmp_path / name, (one,))


def test_labels_as_pandas_and_others_have_them() -> None:
    inputs = np.zeros((2, *IMAGE.shape[1:]), np.float32)
    for labels in (np.array(["cat", "dog"], object), np.eye(2)[:, None]):
        found = dataset_of_arrays({"inputs": inputs, "labels": labels}, (IMAGE,))
        assert found.labels is not None and found.labels.tolist() == [0, 1]


def test_what_is_no_array_gets_a_sentence() -> None:
    with pytest.raises(DataError, match="'inputs' cannot become an array"):
        dataset_of_arrays({"inputs": [[1.0, 2.0], [3.0]]}, (IMAGE,))
    with pytest.raises(DataError, match="give integers, or names"):
        inputs = np.zeros((2, *IMAGE.shape[1:]), np.float32)
        dataset_of_arrays({"inputs": inputs, "labels": np.array([["a", "b"]] * 2)}, (IMAGE,))


def test_underscores_are_no_part_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,target\n1_0,0\n")
    with pytest.raises(DataError, match="'1_0', which is not a number"):
        load_dataset(path, (ModelInput("x", (1, 1), "float32"),))


def test_data_that_are_sorted_by_class_begin_with_all_classes() -> None:
    labels = np.repeat([4, 7, 9], [5, 3, 4])
    values = np.arange(12, dtype=np.float32)[:, None, None, None]
    values = np.broadcast_to(values, (12, *FLOATS.shape[1:]))
    given = dataset_of_arrays({"inputs": values, "labels": labels}, (FLOATS,))
    found = given.in_turns(6)
    assert found.labels is not None and found.positions is not None
    assert found.labels.tolist() == [4, 7, 9, 4, 7, 9, 4, 7, 9, 4, 9, 4]
    assert found.positions.tolist() == [0, 5, 8, 1, 6, 9, 2, 7, 10, 3, 11, 4]
    (read,) = found.batch(2, 5)
    assert read.reshape(3, -1)[:, 0].tolist() == [8, 1, 6]
    assert found.in_turns(6) is found and given.in_turns(9) is given


def test_labels_of_a_file_in_place_of_the_folders(tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "set" / name).mkdir(parents=True)
        np.save(tmp_path / "set" / name / "0.npy", REALS[number])
    np.save(tmp_path / "mine.npy", np.array([1, 1]))
    found = load_dataset(tmp_path / "set", (FLOATS,), labels=tmp_path / "mine.npy")
    assert found.labels is not None and found.labels.tolist() == [1, 1]
    assert found.origin == "of the folder set, with mine.npy instead of its classes"
