"""What makes machine code: the only package that knows Numba, and the only one that leans on what is inside of it.

- `jit`: the decorators of kernels. `handles`: state with named fields that Python and kernels share.
- `doors`: what is compiled, and when. `cache`: where the code is kept. `progress`: telling who waits for it.
- `structs`: how kernels see a handle. `linking`: compiling in half the time. `leaning`: which inner names of Numba
  those two and the cache rest on.
"""
