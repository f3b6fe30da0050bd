"""Rotations that spread outliers over all channels: orthogonal matrices, folded into weights.

For an orthogonal R, x w^T = (x R)(w R)^T; where what makes x takes R into its own weights, nothing
is computed at run time (QuaRot, Ashkboos et al. 2024; SpinQuant, Liu et al. 2024). A Hadamard
matrix spreads best: all its entries have one magnitude.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SYLVESTER: Matrix = np.array([[1.0, 1.0], [1.0, -1.0]])


def rotation(size: int, seed: int) -> Matrix:
    """A randomised Hadamard matrix over sqrt(size), or, where none is known here, a random one."""
    found = hadamard(size)
    if found is None:
        return random_orthogonal(size, seed)
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), size)
    return signs[:, None] * found / np.sqrt(size)


def random_orthogonal(size: int, seed: int) -> Matrix:
    """An orthogonal matrix drawn from the Haar measure (Mezzadri 2007)."""
    drawn = np.random.default_rng(seed).standard_normal((size, size))
    q, r = np.linalg.qr(drawn)
    return q * np.sign(np.diag(r))


def hadamard(size: int) -> Matrix | None:
    """A matrix of 1 and -1 with orthogonal rows, or None where these constructions make none.

    Sylvester's doubling of the matrices that Paley (1933) makes of a prime: of p + 1 rows where p
    = 3 mod 4, of 2 (p + 1) rows where p = 1 mod 4. So 384, 576, 768, 896, 1536 and the powers of
    two have one.
    """
    if size in (1, 2):
        return SYLVESTER[:size, :size]
    if size % 4:
        return None
    if _is_prime(size - 1):
        return _paley_first(size - 1)
    if _is_prime(size // 2 - 1) and (size // 2 - 1) % 4 == 1:
        return _paley_second(size // 2 - 1)
    half = hadamard(size // 2)
    return None if half is None else _kron(SYLVESTER, half)


def fold_into_inputs(weight: NDArray[Any], turn: Matrix) -> NDArray[Any]:
    """The matrix [N, K] of a layer whose input x became x turn."""
    return (weight.astype(np.float64) @ turn).astype(weight.dtype)


def fold_into_outputs(weight: NDArray[Any], turn: Matrix) -> NDArray[Any]:
    """The matrix [N, K] of a layer whose output y becomes y turn."""
    return (turn.T @ weight.astype(np.float64)).astype(weight.dtype)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))


def _residues(prime: int) -> Matrix:
    """Jacobsthal's matrix: at (i, j) whether i - j is a square modulo the prime: 1, -1, or 0."""
    character = np.full(prime, -1.0)
    character[[i * i % prime for i in range(prime)]] = 1
    character[0] = 0
    index = np.arange(prime)
    return character[(index[:, None] - index) % prime]


def _paley_first(prime: int) -> Matrix:
    """Of p + 1 rows, p = 3 mod 4: the identity plus a skew conference matrix."""
    core = np.ones((prime + 1, prime + 1))
    core[1:, 1:] = _residues(prime)
    core[1:, 0] = -1
    core[0, 0] = 0
    return core + np.eye(prime + 1)


def _paley_second(prime: int) -> Matrix:
    """Of 2 (p + 1) rows, p = 1 mod 4, from a symmetric conference matrix."""
    core = np.ones((prime + 1, prime + 1))
    core[1:, 1:] = _residues(prime)
    core[0, 0] = 0
    diagonal = np.array([[1.0, -1.0], [-1.0, -1.0]])
    return _kron(core, SYLVESTER) + _kron(np.eye(prime + 1), diagonal)


def _kron(outer: Matrix, inner: Matrix) -> Matrix:
    return np.kron(outer, inner).astype(np.float64, copy=False)
