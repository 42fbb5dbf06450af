"""Mutation tests: small faults are planted into one module at a time, and its tests must notice each of them.

    make mutants MODULE=cpsched_bridge.cycle.guard          every mutant of one module
    make mutants MODULE=cpsched_bridge.store.ledger SAMPLE=40 SEED=7

- `operators`: which faults there are: those of Cosmic Ray that mean something here, and three of our own.
- `runner`: plants a fault in memory and runs the tests in a forked process; no file of the tree is changed.
- `by_hand`, `by_hand.toml`: faults that people thought up, planted in the same way.
- `modules.toml`: which tests watch over which module. `equivalent.toml`: mutants that mean the same, and why.

Compiled kernels are out of scope: a mutant would have to be compiled. `tests/properties` holds them against references.
"""
