"""Services with one rule broken on purpose: a check that passes on a mutant proves nothing.

`python -m tests.mutants <service> <mutant>[+<mutant>...]` patches the real service and runs it. A
mutant lives here alone; production code has no hooks for it. `sparse_mla` is no service: its
mutants are edits of the kernel's sources, built and run by tests and by `./tools/bench kernels`.
"""
