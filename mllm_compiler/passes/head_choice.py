"""What an attention's heads tell on calibration data, and its output without some of them.

A head's information is how far its attention is from looking everywhere alike: 1 - H / log n, with
H the entropy over the n keys that a query sees. What the output needs of the heads that stay is
least squares: the covariance of all heads' outputs is enough for it, whatever the amount of data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass
class Moments:
    """Sums over calibration tokens.

    Attributes:
        rows: How many tokens.
        total: The sum of the heads' outputs, [H*D].
        products: The sum of their products, [H*D, H*D].
        queries: How many queries saw more than one key.
        information: The sum of each head's information, [H].
    """

    rows: int
    total: Reals
    products: Reals
    queries: int
    information: Reals

    @classmethod
    def none(cls, heads: int, width: int) -> Moments:
        """No token yet, for H heads of H*D channels."""
        return cls(0, np.zeros(width), np.zeros((width, width)), 0, np.zeros(heads))

    def add(self, outputs: NDArray[Any], weights: NDArray[Any]) -> None:
        """Adds tokens: outputs [B, T, H*D], attention weights [B, H, T, S]; excluded keys are 0."""
        flat = outputs.reshape(-1, outputs.shape[-1]).astype(np.float64)
        self.rows += len(flat)
        self.total += flat.sum(0)
        self.products += flat.T @ flat
        seen = (weights.max(1) > 0).sum(-1)
        shares = np.where(weights > 0, weights, 1).astype(np.float64)
        entropy = -(shares * np.log(shares)).sum(-1)
        counted = seen > 1
        most = np.log(np.where(counted, seen, 2))[:, None, :]
        self.queries += int(counted.sum())
        self.information += np.where(counted[:, None, :], 1 - entropy / most, 0).sum((0, 2))

    @property
    def mean(self) -> Reals:
        """The mean of the heads' outputs, [H*D]."""
        return self.total / self.rows

    @property
    def covariance(self) -> Reals:
        """Their covariance, [H*D, H*D]."""
        return self.products / self.rows - np.outer(self.mean, self.mean)


def channels(heads: list[int], size: int) -> Places:
    """The channels of heads of `size` channels each."""
    return (np.array(heads, np.int64)[:, None] * size + np.arange(size)).reshape(-1)


def most_informed(moments: Moments, groups: int, keep: int) -> list[int]:
    """The groups of heads with the most information, ascending; equal ones in their order."""
    mean = moments.information.reshape(groups, -1).mean(1)
    return sorted(np.argsort(-mean, kind="stable")[:keep].tolist())


def least_missed(
    moments: Moments, weight: NDArray[Any], groups: int, keep: int, ridge: float
) -> list[int]:
    """The groups that are left when that whose loss costs the output least goes, one by one."""
    size, left = moments.total.size // groups, list(range(groups))
    while len(left) > keep:
        without = [[g for g in left if g != gone] for gone in left]
        errors = [loss(moments, weight, channels(some, size), ridge) for some in without]
        left = without[int(np.argmin(errors))]
    return left


def resolved(
    moments: Moments, weight: NDArray[Any], bias: NDArray[Any] | float, kept: Places, ridge: float
) -> tuple[Reals, Reals]:
    """The output projection that fits the whole attention's best, from some channels alone.

    Minimises the mean square of (kept w'^T + b') - (all w^T + b), plus `ridge` times the channels'
    mean variance times the square of w' (Hoerl & Kennard 1970).

    Args:
        moments: Of all channels.
        weight: The projection of all channels, [N, H*D].
        bias: Its bias, [N], or 0.
        kept: The channels that are left, K of them.
        ridge: Keeps the solution small where channels hardly vary.

    Returns:
        w' [N, K] and b' [N].
    """
    all_of = weight.astype(np.float64)
    covariance, mean = moments.covariance, moments.mean
    among: Reals = covariance[np.ix_(kept, kept)]
    floor = ridge * np.trace(among) / len(kept) + np.finfo(np.float32).tiny
    wanted: Reals = covariance[kept] @ all_of.T
    among += floor * np.eye(len(kept))
    made = np.asarray(np.linalg.solve(among, wanted), np.float64).T
    return made, bias + all_of @ mean - made @ mean[kept]


def loss(moments: Moments, weight: NDArray[Any], kept: Places, ridge: float) -> float:
    """The mean square that `resolved` leaves, summed over the outputs."""
    made, _ = resolved(moments, weight, 0.0, kept, ridge)
    missed = weight.astype(np.float64)
    missed[:, kept] -= made
    return float(np.einsum("nk,kl,nl->", missed, moments.covariance, missed))
