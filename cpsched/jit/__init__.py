"""Compilation of kernels. No other package imports Numba or depends on its internals.

- `decorators`: the decorators of kernels.
- `handles`: state with named fields that Python and kernels share.
- `compiled_functions`: what is compiled, and when.
- `kernel_cache`: where compiled code is stored.
- `compile_progress`: progress of compilation.
- `structs`: how kernels see a handle.
- `linking`: faster compilation.
"""
