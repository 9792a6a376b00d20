"""What `./tools/bench NAME` runs: one module a bench, each ends with its report."""
