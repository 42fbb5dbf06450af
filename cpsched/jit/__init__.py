"""Compilation of kernels. No other package imports Numba or depends on its internals.

- `decorators`: the decorators of kernels and subroutines.
- `handles`: state with named fields, shared by Python and kernels.
- `compiled_functions`: what is compiled, and when.
- `kernel_cache`: storage of compiled code.
- `compile_progress`: progress of compilation.
- `structs`: the kernels' view of a handle.
- `linking`: faster compilation.
"""
