"""What can go wrong: one base, and children that say what was found and what was expected."""

from collections.abc import Sequence


class SparseMlaError(Exception):
    """Base of every error of this package."""


class WrongDtype(SparseMlaError):
    """A tensor has a dtype the kernel does not read."""

    def __init__(self, name: str, found: object, expected: Sequence[object]) -> None:
        super().__init__(f"{name} is {found}; expected {' or '.join(map(str, expected))}")
        self.name, self.found, self.expected = name, found, tuple(expected)


class WrongShape(SparseMlaError):
    """A tensor or a count does not fit the others."""

    def __init__(self, name: str, found: object, expected: str) -> None:
        super().__init__(f"{name} is {found}; expected {expected}")
        self.name, self.found, self.expected = name, found, expected


class WrongValue(SparseMlaError):
    """A number or a choice outside of what the kernel defines."""

    def __init__(self, name: str, found: object, expected: str) -> None:
        super().__init__(f"{name} is {found!r}; expected {expected}")
        self.name, self.found, self.expected = name, found, expected


class WrongLayout(SparseMlaError):
    """A tensor's bytes do not lie where the kernel would read them."""

    def __init__(self, name: str, found: str, expected: str) -> None:
        super().__init__(f"{name} {found}; expected {expected}")
        self.name, self.found, self.expected = name, found, expected


class IndexOutOfRange(SparseMlaError):
    """A slot names a row that the cache does not have."""

    def __init__(self, least: int, most: int, num_rows: int) -> None:
        super().__init__(
            f"indices reach from {least} to {most}; expected -1 (empty) or 0 to {num_rows - 1}"
        )
        self.least, self.most, self.num_rows = least, most, num_rows


class UnsupportedArchitecture(SparseMlaError):
    """The device is none of those the kernel is built for."""

    def __init__(self, found: str, expected: Sequence[str]) -> None:
        super().__init__(f"the device is {found}; expected {' or '.join(expected)}")
        self.found, self.expected = found, tuple(expected)


class CompilerMissing(SparseMlaError):
    """A build needs a compiler that is not here."""

    def __init__(self, compiler: str, needed_for: str) -> None:
        super().__init__(f"{compiler} was not found on PATH; {needed_for} needs it")
        self.compiler, self.needed_for = compiler, needed_for


class BuildFailed(SparseMlaError):
    """A compiler refused the sources."""

    def __init__(self, command: Sequence[str], log: str) -> None:
        super().__init__(f"{' '.join(command)}\n{log}")
        self.command, self.log = tuple(command), log


class EmulationFailed(SparseMlaError):
    """The emulator saw a deadlock, a bad address or a divergence: the kernel is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class LaunchFailed(SparseMlaError):
    """The CUDA runtime refused a call."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"CUDA error {code}: {text}")
        self.code, self.text = code, text
