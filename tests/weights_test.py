"""The weight store answers with the bytes that went in, and holds none of them."""

import hashlib

import numpy as np
import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.weights import WeightStore


def test_an_added_array_comes_back(tmp_path):
    store = WeightStore(tmp_path)
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = np.arange(5, dtype=np.int64)
    first, second = store.add(a), store.add(b)
    assert first == "sha256:" + hashlib.sha256(a.tobytes()).hexdigest()
    np.testing.assert_array_equal(store.array(first, "f32", (3, 4)), a)
    np.testing.assert_array_equal(store.array(second, "i64", (5,)), b)


def test_equal_bytes_are_stored_once(tmp_path):
    store = WeightStore(tmp_path)
    assert store.add(np.ones(4, np.float32)) == store.add(np.ones((2, 2), np.float32))
    assert (tmp_path / "sidecar.bin").stat().st_size == 16


def test_an_array_that_comes_in_pieces_is_the_whole_array(tmp_path):
    store = WeightStore(tmp_path)
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    digest = store.add_pieces(whole[at : at + 1] for at in range(4))
    assert digest == store.add(whole)
    np.testing.assert_array_equal(store.array(digest, "f32", (4, 3)), whole)
    assert store.add_pieces([whole[:2], whole[2:]]) == digest
    assert (tmp_path / "sidecar.bin").stat().st_size == 48 + 16
    other = store.add(np.ones(4, np.float32))
    np.testing.assert_array_equal(store.array(other, "f32", (4,)), np.ones(4))


def test_a_mapped_weight_is_a_view_of_its_file(tmp_path):
    file = tmp_path / "w.bin"
    file.write_bytes(b"head" + np.arange(3, dtype=np.float32).tobytes())
    store = WeightStore(tmp_path / "side")
    digest = store.add_mapped(file, 4, 12)
    array = store.array(digest, "f32", (3,))
    np.testing.assert_array_equal(array, [0, 1, 2])
    assert not array.flags.writeable
    assert digest in store
    assert not (tmp_path / "side").exists()


def test_an_empty_tensor_has_a_digest(tmp_path):
    store = WeightStore(tmp_path)
    digest = store.add(np.zeros((0, 3), np.float32))
    assert store.array(digest, "f32", (0, 3)).shape == (0, 3)


def test_a_file_that_ends_early_is_refused(tmp_path):
    file = tmp_path / "w.bin"
    file.write_bytes(b"1234")
    with pytest.raises(ValueError, match="ends before byte 12"):
        WeightStore(tmp_path).add_mapped(file, 4, 8)


def test_an_unknown_digest_is_a_key_error(tmp_path):
    with pytest.raises(KeyError):
        WeightStore(tmp_path).raw("sha256:0")


def test_a_sidecar_that_cannot_be_written_is_a_located_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CompileError) as caught:
        WeightStore(tmp_path / "file").add(np.zeros(3, np.float32))
    assert str(caught.value).startswith(f"{tmp_path}/file: error: the weights that passes make")
    assert caught.value.code == "MLC-U005"
