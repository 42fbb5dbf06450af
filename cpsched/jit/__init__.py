"""Compile kernels. No other package imports Numba or depends on its internals.

- `decorators`: the decorators of kernels and subroutines.
- `shared_structs`: state with named fields, shared by Python and kernels.
- `compiled_functions`: what is compiled, and when.
- `kernel_cache`: storage of compiled code.
- `compile_progress`: progress of compilation.
- `numba_struct_types`: the kernels' view of a shared struct.
- `kernel_linking`: faster compilation.
"""
