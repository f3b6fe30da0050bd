"""Sizes and seeds of the tiny models."""

from __future__ import annotations

from dataclasses import replace

from models.recipe.attention import Heads
from models.recipe.bert import BertConfig
from models.recipe.bloom import BloomConfig
from models.recipe.clip import ClipConfig
from models.recipe.convnext import ConvNextConfig
from models.recipe.dinov2 import Dinov2Config
from models.recipe.encoder import EncoderConfig
from models.recipe.flamingo import FlamingoConfig
from models.recipe.gemma3 import Gemma3Config
from models.recipe.gpt2 import Gpt2Config
from models.recipe.llama import LlamaConfig
from models.recipe.mamba import MambaConfig
from models.recipe.projector import ProjectorConfig
from models.recipe.siglip import SiglipConfig
from models.recipe.svtr import Stage, SvtrConfig
from models.recipe.t5 import T5Config
from models.recipe.tiny_text import VOCAB
from models.recipe.wav2vec2 import Wav2Vec2Config
from models.recipe.whisper import WhisperConfig

SEED = 20261130
TINY_VIT = Dinov2Config(size=56, patch=14, hidden=32, heads=2, layers=2, inner=64)
TINY_LLAMA = LlamaConfig(
    vocab=VOCAB,
    hidden=32,
    inner=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head=8,
    epsilon=1e-5,
    theta=10_000.0,
)
TINY_QWEN2 = replace(TINY_LLAMA, epsilon=1e-6, theta=1_000_000.0, biased=True, tied=False)
TINY_GPT2 = Gpt2Config(vocab=VOCAB, hidden=32, heads=4, layers=2, longest=256)
TINY_BERT = BertConfig(vocab=VOCAB, hidden=32, heads=4, layers=2, inner=64, longest=128)
TINY_LAYOUTLM = replace(TINY_BERT, places=1024)
TINY_GEMMA3 = Gemma3Config(
    vocab=VOCAB,
    hidden=32,
    inner=64,
    layers=3,
    shape=Heads(heads=4, kv_heads=2, head=8),
    window=5,
    period=3,
)
TINY_BLOOM = BloomConfig(vocab=VOCAB, hidden=32, heads=4, layers=2)
TINY_MAMBA = MambaConfig(vocab=VOCAB, hidden=32, layers=2, inner=64, states=8, kernel=4, rank=2)
TINY_T5 = T5Config(
    vocab=VOCAB, hidden=32, inner=64, layers=2, heads=4, head=8, buckets=8, farthest=16
)
TINY_FLAMINGO = FlamingoConfig(
    text=TINY_LLAMA, seen=TINY_VIT.tokens, width=TINY_VIT.hidden, heads=4, head=8
)
TINY_PROJECTOR = ProjectorConfig(grid=4, width=32, hidden=32)
TINY_WHISPER = WhisperConfig(
    vocab=VOCAB, hidden=32, heads=2, layers=2, inner=64, mels=8, frames=20, longest=32
)

TINY_BLOCKS = EncoderConfig(hidden=32, heads=2, layers=2, inner=64)
TINY_CLIP = ClipConfig(
    text=EncoderConfig(hidden=24, heads=3, layers=2, inner=48),
    vision=TINY_BLOCKS,
    vocab=VOCAB,
    longest=16,
    size=28,
    patch=7,
    projection=16,
)
TINY_SIGLIP = SiglipConfig(
    text=TINY_BLOCKS, vision=TINY_BLOCKS, vocab=VOCAB, longest=8, size=28, patch=7
)
TINY_DINOV2 = Dinov2Config(
    size=56, patch=14, hidden=32, heads=2, layers=2, inner=64, registers=4, stored_grid=7
)
TINY_CONVNEXT = ConvNextConfig(size=32, patch=4, widths=(16, 24), depths=(2, 1), labels=10)
TINY_SVTR = SvtrConfig(
    height=16,
    width=64,
    stages=(
        Stage(EncoderConfig(hidden=24, heads=3, layers=2, inner=48), window=(3, 5)),
        Stage(EncoderConfig(hidden=32, heads=4, layers=1, inner=64), window=None),
    ),
    out=40,
    classes=20,
)
TINY_WAV2VEC2 = Wav2Vec2Config(
    channels=16,
    kernels=(10, 3, 3, 2),
    strides=(5, 2, 2, 2),
    encoder=TINY_BLOCKS,
    position_kernel=16,
    position_groups=4,
    vocab=20,
)
