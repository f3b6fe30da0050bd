"""What the tiny encoders of images, texts and sound compute, by what must not depend on what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.recipe.ctc import greedy
from models.recipe.session import Session
from models.recipe.svtr import local_mask
from models.recipe.tiny import TINY_CLIP, TINY_DINOV2, TINY_SIGLIP, TINY_SVTR, TINY_WAV2VEC2

Build = Callable[[str], Path]
RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def near(left: object, right: object) -> None:
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-4, atol=1e-5)


def test_clip_compares_texts_and_images_by_angle(tiny: Build) -> None:
    session = Session(tiny("tiny-clip") / "model.onnx", threads=1)
    ids = RNG.integers(0, TINY_CLIP.vocab, (3, 5))
    pixels = real(2, 3, TINY_CLIP.size, TINY_CLIP.size)
    mask = np.ones_like(ids)
    made = session.run({"input_ids": ids, "attention_mask": mask, "pixel_values": pixels})
    text, image = np.asarray(made["text_embeds"]), np.asarray(made["image_embeds"])
    near(np.linalg.norm(text, axis=1), np.ones(3))
    near(np.linalg.norm(image, axis=1), np.ones(2))
    near(made["logits_per_text"], text @ image.T / 0.07)
    near(made["logits_per_image"], np.asarray(made["logits_per_text"]).T)


def test_clip_reads_a_text_up_to_its_last_token(tiny: Build) -> None:
    session = Session(tiny("tiny-clip") / "model.onnx", threads=1)
    pixels, end = real(1, 3, TINY_CLIP.size, TINY_CLIP.size), TINY_CLIP.vocab - 1
    texts = [
        session.run({"input_ids": ids, "attention_mask": mask, "pixel_values": pixels})
        for ids, mask in (
            (np.array([[5, 6, end]]), np.array([[1, 1, 1]])),
            (np.array([[5, 6, end, 9, 3]]), np.array([[1, 1, 1, 1, 1]])),
            (np.array([[5, 6, end, end, end]]), np.array([[1, 1, 1, 0, 0]])),
            (np.array([[6, 5, end]]), np.array([[1, 1, 1]])),
        )
    ]
    first, longer, padded, other = (np.asarray(t["text_embeds"]) for t in texts)
    near(longer, first)
    near(padded, first)
    assert np.abs(other - first).max() > 1e-3


def test_siglip_sees_all_patches_by_one_query(tiny: Build) -> None:
    session = Session(tiny("tiny-siglip") / "model.onnx", threads=1)
    ids = RNG.integers(0, TINY_SIGLIP.vocab, (3, TINY_SIGLIP.longest))
    pixels = real(2, 3, TINY_SIGLIP.size, TINY_SIGLIP.size)
    made = session.run({"input_ids": ids, "pixel_values": pixels})
    text, image = np.asarray(made["text_embeds"]), np.asarray(made["image_embeds"])
    near(made["logits_per_text"], 10 * text @ image.T - 10)
    alone = session.run({"input_ids": ids[1:2], "pixel_values": pixels[1:2]})
    near(alone["logits_per_image"], np.asarray(made["logits_per_image"])[1:2, 1:2])


def test_dinov2_has_a_class_token_registers_and_patches(tiny: Build) -> None:
    session = Session(tiny("tiny-dinov2") / "model.onnx", threads=1)
    pixels = real(2, 3, TINY_DINOV2.size, TINY_DINOV2.size)
    seen = session.run({"pixel_values": pixels})["last_hidden_state"]
    assert seen.shape == (2, 1 + TINY_DINOV2.registers + 16, TINY_DINOV2.hidden)


def test_a_local_mask_shows_a_window() -> None:
    seen = (local_mask((3, 4), (3, 3))[0, 0] == 0).reshape(3, 4, 3, 4)
    assert seen[1, 1].tolist() == [[True, True, True, False]] * 3
    assert seen[0, 3].tolist() == [[False, False, True, True]] * 2 + [[False] * 4]


def test_svtr_gives_a_distribution_for_every_column(tiny: Build) -> None:
    session = Session(tiny("tiny-svtr") / "model.onnx", threads=1)
    made = session.run({"x": real(2, 3, TINY_SVTR.height, TINY_SVTR.width)})["softmax_0.tmp_0"]
    assert made.shape == (2, TINY_SVTR.width // 4, TINY_SVTR.classes)
    near(np.asarray(made).sum(-1), np.ones((2, TINY_SVTR.width // 4)))


def test_wav2vec2_gives_a_frame_for_every_step_of_its_front_end(tiny: Build) -> None:
    session = Session(tiny("tiny-wav2vec2") / "model.onnx", threads=1)
    frames = 400
    for kernel, stride in zip(TINY_WAV2VEC2.kernels, TINY_WAV2VEC2.strides, strict=True):
        frames = (frames - kernel) // stride + 1
    made = session.run({"input_values": real(2, 400)})["logits"]
    assert made.shape == (2, frames, TINY_WAV2VEC2.vocab)


@pytest.mark.parametrize("path", ["a-ab-", "-aa--abb"])
def test_greedy_decoding_maps_paths_as_graves_does(path: str) -> None:
    """The example of Graves et al. 2006, section 3.1: both paths are read as `aab`."""
    scores = np.eye(3)[["-ab".index(step) for step in path]]
    assert greedy(scores) == [1, 1, 2]


def test_greedy_decoding_of_no_steps_and_of_blanks() -> None:
    assert greedy(np.zeros((0, 3))) == []
    assert greedy(np.eye(3)[[0, 0]]) == []
    assert greedy(np.eye(3)[[2, 0, 2]], blank=2) == [0]
