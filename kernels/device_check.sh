#!/usr/bin/env bash
# On a machine with a Hopper or Blackwell data-centre GPU: builds the kernel, compares it with the
# float64 reference and times it, in under four minutes; the table comes last.
#   kernels/device_check.sh            needs nvcc 13 on PATH and a Python with a CUDA build of torch
#   PYTHON=python3.12 kernels/device_check.sh
# Without a GPU it compiles all three targets, says that nothing was run, and exits 3.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
export PYTHONPATH="$root/kernels/src${PYTHONPATH:+:$PYTHONPATH}"
exec timeout --signal=INT --kill-after=10 235 "$python" -m sparse_mla.device_check "$@"
