"""Elements, pairs of a query and a key, and the hooks of an expression at them.

The words of all kernels:

    S           the expression's numbers and table sizes, in the order in which its hooks were
                rendered; real numbers as their bits
    T           its tables, as pointers, followed by the values that HOLD loads
    place       the indices of a tile's elements, with S and T: the arguments of a hook
    HOLD        loads values that are the same for a row of tiles, such as a head's slope, once,
                before the loop: returns T followed by them, and the unit
    unit        the factor of the scores that BIASED returns: `scale` where terms are added to
                q . k, and 1 where BIASED returns the score itself, as for a softcap. The
                exponential's own multiplication includes it
    BIASED      the biased score of q . k, in the unit; None without a bias
    SLOPE       its derivative by the score; None where it is 1
    MASKED      the score, or -inf where the mask drops the pair
    NEXT_RUN    the first run of tiles to visit from a tile on (`runs`)
    PARTIAL     whether some elements of a tile may be dropped; FULL tiles skip MASKED
    WEIGHTED    the biased score is the weight itself: there is no softmax

Related arguments are passed as a named tuple. A tuple that holds constants or hooks is made within
the call that takes it: bound to a name, its constants would become tensors. No field is named
`values` or `type`, which Triton's own tuples have.
"""

from typing import NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)

SCALARS = tuple(f"S{i}" for i in range(24))
"""Names of the numbers in a kernel's signature, of which `S` is made.

Each is an argument of its own: Triton compiles anew for a number that is 1 or a multiple of 16
unless its name is listed in `do_not_specialize`, and the elements of a tuple have no names.
"""


class Place(NamedTuple):
    """Elements of a tile; indices are of one row, of one column or of all its elements.

    Before a tile is known, its index is a zero of the width that indices need: 64 bits if numbers
    of the expression come near the limit of 32.
    """

    batch: tl.tensor
    head: tl.tensor
    q_idx: tl.tensor
    kv_idx: tl.tensor
    kv_len: tl.tensor
    S: tl.tuple
    T: tl.tuple


class Hooks(NamedTuple):
    """The hooks of an expression, and whether its result is a score or a weight."""

    HOLD: tl.constexpr
    MASKED: tl.constexpr
    BIASED: tl.constexpr
    SLOPE: tl.constexpr
    NEXT_RUN: tl.constexpr
    WEIGHTED: tl.constexpr


@triton.jit
def at_keys(place, n):
    """A row of queries at keys `n`."""
    kv_idx = (n + place.kv_idx)[None, :]
    return Place(place.batch, place.head, place.q_idx, kv_idx, place.kv_len, place.S, place.T)


@triton.jit
def at_queries(place, m):
    """A row of keys at queries `m`."""
    q_idx = (m + place.q_idx)[None, :]
    return Place(place.batch, place.head, q_idx, place.kv_idx, place.kv_len, place.S, place.T)


@triton.jit
def biased(product, place, hooks):
    """The biased score of each pair from q . k, in the unit."""
    score = product
    if hooks.BIASED is not None:
        score = hooks.BIASED(product, *place)
    return score


@triton.jit
def masked(score, place, hooks, PARTIAL):
    """The score, -inf where the pair is dropped."""
    if PARTIAL:
        score = hooks.MASKED(score, *place)
    return score


@triton.jit
def kept(score, place, hooks):
    """True where the mask keeps a pair, in the shape of `score`."""
    # Written with operations that Gluon has too.
    nothing = tl.where(score == score, 0.0, 0.0)
    return hooks.MASKED(nothing, *place) == 0.0


@triton.jit
def weight_of(product, place, unit, hooks, PARTIAL):
    """The weight of each pair where the biased score is the weight; 0 where it is dropped."""
    if PARTIAL:
        # Some formulas compute two elements at a time, and a dropped element must not change the
        # rounding of its neighbour.
        product = tl.where(kept(product, place, hooks), product, 0.0)
    w = biased(product, place, hooks) * unit
    if PARTIAL:
        w = tl.where(kept(product, place, hooks), w, 0.0)
    return w


@triton.jit
def weights(product, statistic, place, unit, hooks, PARTIAL):
    """Weights of a tile from q . k: exp(s - lse) with the lse in units of log 2, or w / z."""
    if hooks.WEIGHTED:
        p = weight_of(product, place, unit, hooks, PARTIAL) * statistic
    else:
        score = masked(biased(product, place, hooks), place, hooks, PARTIAL)
        p = tl.math.exp2(score * (unit * LOG2E) - statistic)
    return p


@triton.jit
def weight_gradient(p, dp, delta, statistic, place, hooks, PARTIAL):
    """The gradient of the biased score."""
    if hooks.WEIGHTED:
        ds = (dp - delta) * statistic
        if PARTIAL:
            ds = tl.where(kept(ds, place, hooks), ds, 0.0)
    else:
        ds = p * (dp - delta)
    return ds


@triton.jit
def slope_of(product, place, hooks):
    """The derivative of the biased score by the score."""
    slope = 1.0
    if hooks.SLOPE is not None:
        slope = hooks.SLOPE(product, *place)
    return slope


@triton.jit
def weights_and_slopes(product, statistic, place, unit, hooks, PARTIAL):
    """w / z and w' / z of a tile, both 0 where a pair is dropped; z is 1 without a `statistic`.

    The results of `weights`, `weight_gradient` and `slope_of` if WEIGHTED, with one evaluation of
    the mask, in fewer registers.
    """
    w = biased(product, place, hooks) * unit
    slope = tl.where(product == product, 1.0, 1.0)
    if hooks.SLOPE is not None:
        slope = hooks.SLOPE(product, *place)
    if statistic is not None:
        w = w * statistic
        slope = slope * statistic
    if PARTIAL:
        keep = kept(product, place, hooks)
        w = tl.where(keep, w, 0.0)
        slope = tl.where(keep, slope, 0.0)
    return w, slope


@triton.jit
def weights_of_gradient(product, statistic, place, unit, hooks, PARTIAL):
    """Weights of a tile, and, WEIGHTED, the slopes that `score_gradient` needs."""
    if hooks.WEIGHTED:
        return weights_and_slopes(product, statistic, place, unit, hooks, PARTIAL)
    else:
        return weights(product, statistic, place, unit, hooks, PARTIAL), 0.0


@triton.jit
def factors_of_gradient(product, statistic, place, unit, hooks, PARTIAL):
    """Weights of a tile, and the factor of dO . v - delta in the gradient of scores."""
    p, slope = weights_of_gradient(product, statistic, place, unit, hooks, PARTIAL)
    if hooks.WEIGHTED:
        return p, slope
    else:
        return p, p * slope_of(product, place, hooks)


@triton.jit
def score_gradient(product, p, slope, dp, delta, statistic, place, hooks, PARTIAL):
    """The gradient of scores from `weights_of_gradient` and dO . v; without a `delta` it is 0."""
    if hooks.WEIGHTED:
        if delta is not None:
            dp = dp - delta
        ds = dp * slope
    else:
        ds = weight_gradient(p, dp, delta, statistic, place, hooks, PARTIAL)
        ds = ds * slope_of(product, place, hooks)
    return ds
