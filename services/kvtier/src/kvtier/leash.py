"""Runs a program that must not outlive its parent: `python -m kvtier.leash PARENT_PID PROGRAM ...`.

The kernel kills it when the parent dies, however the parent dies: PR_SET_PDEATHSIG outlives exec.
A program of its own, because a fork of a process with gRPC's threads must not run Python code.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent and becomes the program."""
    parent, program, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the leash was on
        sys.exit(1)
    os.execvp(program, [program, *arguments])


if __name__ == "__main__":
    main()
