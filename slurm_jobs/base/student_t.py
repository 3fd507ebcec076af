"""Student's t distribution, without SciPy on the login node. PURE."""

from __future__ import annotations

import math

_TINY = 1e-300
_MAX_TERMS = 400
_PRECISION = 1e-14


def two_sided(confidence: float, num_degrees: float) -> float:
    """Return half the width of an interval, in standard errors.

    It is 2.228 for 0.95 and 10 degrees of freedom.

    Args:
        confidence: share of such intervals that hold the true value, within 0 and 1.
        num_degrees: of freedom, above 0; need not be whole (Welch).

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 < confidence < 1 or not num_degrees > 0:
        message = f"no t of confidence {confidence} and {num_degrees} degrees of freedom"
        raise ValueError(message)
    t = 0.0
    # Newton's method: the tail probability falls ever more slowly, so no step overshoots.
    for _ in range(_MAX_TERMS):
        # Probability beyond `t` or `-t`: I_x(n/2, 1/2) with x = n / (n + t^2).
        outside = _incomplete_beta(num_degrees / (num_degrees + t * t), num_degrees / 2, 0.5)
        step = (outside - (1 - confidence)) / (2 * _density(t, num_degrees))
        t += step
        if abs(step) <= _PRECISION * t:
            break
    return t


def _density(t: float, num_degrees: float) -> float:
    log_front = math.lgamma((num_degrees + 1) / 2) - math.lgamma(num_degrees / 2)
    log_front -= math.log(num_degrees * math.pi) / 2
    return math.exp(log_front - (num_degrees + 1) / 2 * math.log1p(t * t / num_degrees))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction of the other side converges faster
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_front) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """Return its continued fraction (DLMF 8.17.22), by the method of Lentz."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _away(value: float) -> float:
    """Return the value moved away from zero."""
    return value if abs(value) > _TINY else _TINY
