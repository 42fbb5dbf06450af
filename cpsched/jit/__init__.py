"""What makes machine code: the only package that knows Numba, and the only one that leans on what is inside of it.

- `jit`: the decorators of kernels.
- `handles`: state with named fields that Python and kernels share.
- `doors`: what is compiled, and when.
- `cache`: where the code is kept.
- `progress`: how far compiling is, for whoever waits.
- `structs`: how kernels see a handle.
- `linking`: compiling in half the time.
"""
