"""Imported where processes are forked from: Numba has compiled something, which loads most of it."""

import numba


@numba.njit
def inside(x):
    return 2 * x


@numba.njit("int64(int64)")
def outside(x):
    return inside(x)
