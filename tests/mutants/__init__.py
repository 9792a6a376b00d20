"""Services with one rule broken on purpose: a check that passes on a mutant proves nothing.

`python -m tests.mutants <service> <mutant>[+<mutant>...]` patches the real service and runs it. A
mutant lives here alone; production code has no hooks for it. `sparse_mla` and `nvfp4_rows` are no
services: their mutants are edits of C++ sources, built by tests and `./tools/bench kernels`.
"""
