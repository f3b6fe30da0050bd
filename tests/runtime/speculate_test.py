"""Speculative decoding: the tokens of plain decoding where it is greedy, its distribution else.

The truth is plain decoding by the same model, which `answer_test` compares with ONNX Runtime. The
run that verifies computes each row as if it were the only one, so that greedy answers are equal bit
for bit, near ties included.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from models.recipe.tiny_text import VOCAB
from runtime_stub import Model, RuntimeFailure, library_path
from tests.bundle.small_bundle import KEY
from tests.runtime.internals import Internals
from tests.runtime.library import ROOT
from tests.runtime.sampling_test import CSampler
from tests.runtime.text_models import language_module, write_text_bundle

TALKERS = ("tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-gemma3", "tiny-bloom")
PROMPTS = ("the cat and the dog and the cat and", "abcabcabcabc", "What is 12 + 34?")
Opener = Callable[[str], Model]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, trust: Path) -> Iterator[Opener]:
    folder, models = tmp_path_factory.mktemp("speculation"), list[Model]()

    @lru_cache
    def bundle(name: str) -> Path:
        path = folder / f"{name}.mllm_bundle"
        compile_model(Request(model=build_recipe(name, print), output=path, key=KEY))
        return path

    def open_recipe(name: str) -> Model:
        models.append(Model.open(bundle(name), trust=trust, threads=2))
        return models[-1]

    yield open_recipe
    for model in models:
        model.close()


def tokens(model: Model, prompt: str, **options: object) -> list[int]:
    pieces = model.generate(prompt, **options)  # type: ignore[arg-type]
    return [piece.token for piece in pieces if piece.token is not None]


def saves_steps(model: Model, draft: Model | None, prompts: tuple[str, ...], count: int) -> int:
    """Holds greedy answers to be those of plain decoding; how many guesses were right."""
    accepted = 0
    for prompt in prompts:
        plain = tokens(model, prompt, max_new_tokens=count)
        finish = model.statistics.finish
        for drafts in (1, 4, 16):
            assert tokens(model, prompt, max_new_tokens=count, drafts=drafts, draft=draft) == plain
            assert model.statistics.finish == finish
            accepted += model.statistics.accepted
            assert model.statistics.accepted <= model.statistics.drafted
    return accepted


@pytest.mark.parametrize("name", TALKERS)
def test_greedy_answers_are_those_of_plain_decoding(opened: Opener, name: str) -> None:
    with opened(name) as model:
        assert saves_steps(model, None, PROMPTS, 60) > 0


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_a_draft_model_guesses(opened: Opener, name: str) -> None:
    """The model itself is always right; another of the same tokenizer sometimes."""
    with opened("tiny-llama") as model, opened(name) as draft:
        accepted = saves_steps(model, draft, PROMPTS, 40)
        if name == "tiny-llama":
            assert accepted == sum(len(PROMPTS) * (39 - steps(39, k)) for k in (1, 4, 16))


def steps(count: int, drafts: int) -> int:
    """Runs that give so many tokens where every guess is right."""
    return -(-count // (drafts + 1))


def test_an_image_and_a_full_cache(opened: Opener) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    with opened("tiny-vlm") as model, opened("tiny-llama") as draft:
        options = {"image": pixels, "max_new_tokens": 50}
        plain = tokens(model, "say it again", **options)
        assert tokens(model, "say it again", drafts=3, **options) == plain
        assert model.statistics.copied_bytes == 0
        assert tokens(model, "say it again", drafts=3, draft=draft, **options) == plain
        assert model.statistics.drafted > 0


def test_a_cache_fills_as_without(language: Model) -> None:
    plain = tokens(language, "a", max_new_tokens=1000)
    assert tokens(language, "a", max_new_tokens=1000, drafts=5) == plain
    assert language.statistics.finish == "full"


def test_what_cannot_speculate_says_so(opened: Opener, language: Model) -> None:
    sound = np.zeros(4000, np.float32)
    with opened("tiny-whisper") as listener, opened("tiny-llama") as model:
        refusals = [
            (lambda: list(listener.generate(audio=sound, drafts=2)), "several tokens"),
            (lambda: tokens(model, "a", drafts=2, draft=model), "a session of its own"),
            (lambda: tokens(model, "a", drafts=2, draft=listener), "a session of its own"),
        ]
        for call, words in refusals:
            with pytest.raises(RuntimeFailure, match=words) as caught:
                call()
            assert caught.value.code == "MLC-X040"
        assert tokens(model, "a", max_new_tokens=3)


def test_the_plain_program_takes_a_draft(language_bundle: Path, trust: Path) -> None:
    program = library_path().with_name("mllm-run")
    command = [program, language_bundle, "--trust", trust, "--prompt", "the the the", "--json"]

    def told(*more: str | Path) -> dict[str, object]:
        done = subprocess.run([*command, *more], check=True, capture_output=True)
        return json.loads(done.stdout)

    plain = told()
    looked, guessed = told("--speculate", "lookup"), told("--speculate", language_bundle)
    assert plain["text"] == looked["text"] == guessed["text"]
    assert guessed["accepted"] == guessed["drafted"] != 0
    wrong = subprocess.run([*command, "--drafts", "17"], check=False, capture_output=True)
    assert wrong.returncode == 2


@pytest.mark.parametrize("cpu", ["scalar", "avx2", "avx512"])
def test_rows_that_are_verified_are_computed_alone(tmp_path: Path, cpu: str) -> None:
    """To the bit, in each variant of the kernels that this processor has."""
    library, program = library_path(), tmp_path / "rows_alone"
    command = ["cc", "-std=c11", "-O1", f"-I{ROOT}/runtime_stub/include", "-o", str(program)]
    command += [str(Path(__file__).parent / "c" / "rows_alone.c")]
    command += [str(library), f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run(command, check=True)
    environment = {"MLLM_CPU": cpu}
    done = subprocess.run([program], check=False, capture_output=True, text=True, env=environment)
    if "unsupported" in done.stderr:
        pytest.skip(f"this processor has no {cpu}")
    assert done.stdout == "0 linears, 0 attentions differ\n", done.stderr


CRITICAL = 20.5150
"""Chi-square of 5 degrees of freedom that one right sampler in 1,000 exceeds (NIST handbook)."""


def shares(c: Internals, sampler: CSampler, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    found = np.zeros(len(logits))
    given = c.ffi.cast("const float *", logits.ctypes.data)
    c.lib.mllm_shares(sampler.at, given, len(logits), c.ffi.cast("double *", found.ctypes.data))
    return found


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize("case", range(4))
def test_verified_tokens_come_by_the_models_own_distribution(
    internals: Internals, case: int, looked_up: bool
) -> None:
    """30,000 draws, a seed each: Pearson's statistic, false alarm 0.001 for each of the cases."""
    c, size, draws = internals, 6, 30_000
    rng = np.random.default_rng(case)
    sampler = CSampler(c, size, temperature=1.0)
    p, q = (shares(c, sampler, rng.normal(0, 1.5, size).astype(np.float32)) for _ in range(2))
    assert p.sum() == pytest.approx(1)
    made: Counter[int] = Counter()
    at = c.ffi.addressof(sampler.at, "random")
    for seed in range(draws):
        c.lib.mllm_random_seed(at, 1_000_003 * case + seed)
        own, other = c.ffi.new("double[]", list(p)), c.ffi.new("double[]", list(q))
        draft = 2 if looked_up else c.lib.mllm_draw(at, other, size)
        said = c.ffi.NULL if looked_up else other
        made[c.lib.mllm_accept(at, own, said, draft, size)] += 1
    statistic = sum((made[i] - draws * p[i]) ** 2 / (draws * p[i]) for i in range(size))
    assert statistic < CRITICAL


@pytest.mark.parametrize("top_p", [0.9, 1.0])
def test_whole_answers_come_by_the_models_own_distribution(
    tmp_path: Path, language: Model, trust: Path, top_p: float
) -> None:
    """The third tokens of 2,000 answers are, with guesses and without, samples of one distribution.

    The draft never says a token of an even number, so that about half of its guesses are taken.
    Pearson's statistic over numbers modulo 6; false alarm 0.001 for each of the cases.
    """
    even = {"generation": {"suppress": list(range(0, VOCAB, 2))}}
    path = write_text_bundle(tmp_path / "draft", *language_module(), config=even)
    options = {"max_new_tokens": 3, "temperature": 0.3, "top_p": top_p}

    def thirds(of: Model, first: int, draft: Model | None = None) -> NDArray[np.float64]:
        bins, judged = np.zeros(6), np.zeros(2)
        for seed in range(first, first + 2000):
            drafts = 0 if draft is None else 2
            found = tokens(of, "the", seed=seed, drafts=drafts, draft=draft, **options)
            bins[found[-1] % 6 if len(found) == 3 else 0] += 1
            judged += of.statistics.drafted, of.statistics.accepted
        assert draft is None or 0.2 < judged[1] / judged[0] < 0.8
        return bins

    def statistic(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        return float(((a - b) ** 2 / (a + b)).sum())

    with Model.open(path, trust=trust, threads=1) as draft:
        plain = thirds(language, 0)
        assert statistic(plain, thirds(language, 10_000, draft)) < CRITICAL
        assert statistic(plain, thirds(draft, 20_000)) > 5 * CRITICAL


@pytest.mark.slow
def test_greedy_answers_of_smollm2(opened: Opener) -> None:
    prompts = ("Repeat after me: one two three, one two three.", "What is photosynthesis?")
    with opened("smollm2-135m") as model, opened("smollm2-135m") as draft:
        assert saves_steps(model, None, prompts, 64) > 0
        plain = tokens(model, prompts[0], max_new_tokens=32)
        assert tokens(model, prompts[0], max_new_tokens=32, drafts=4, draft=draft) == plain
        assert model.statistics.accepted == model.statistics.drafted
