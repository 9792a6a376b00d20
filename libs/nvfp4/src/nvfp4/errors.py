"""What can go wrong with rows: every error says what was expected and what was given."""


class Nvfp4Error(Exception):
    """Base of everything this library raises on purpose."""


class WrongDtype(Nvfp4Error):
    """A tensor has another element type than the function reads or writes."""

    def __init__(self, name: str, expected: str, given: object) -> None:
        super().__init__(f"Expected {name} of dtype {expected}, got {given}.")
        self.name = name


class WrongShape(Nvfp4Error):
    """A tensor has another shape than the function reads or writes."""

    def __init__(self, name: str, expected: str, given: object) -> None:
        super().__init__(f"Expected {name} of shape {expected}, got {given}.")
        self.name = name


class WrongDevice(Nvfp4Error):
    """A tensor does not lie in this machine's memory."""

    def __init__(self, name: str, given: object) -> None:
        super().__init__(f"Expected {name} on the CPU, got it on {given}.")
        self.name = name


class NotContiguous(Nvfp4Error):
    """A tensor's elements do not lie one behind the other."""

    def __init__(self, name: str, expected: object, given: object) -> None:
        super().__init__(f"Expected {name} contiguous with strides {expected}, got {given}.")
        self.name = name


class Misaligned(Nvfp4Error):
    """A tensor starts at an address that its reader cannot take."""

    def __init__(self, name: str, alignment: int, address: int) -> None:
        super().__init__(
            f"Expected {name} at a multiple of {alignment} bytes, got address {address:#x}, "
            f"{address % alignment} past one."
        )
        self.name = name


class IndexOutOfRange(Nvfp4Error):
    """An index names a row that is not there; only -1 means an empty slot."""

    def __init__(self, token: int, slot: int, index: int, rows: int) -> None:
        super().__init__(
            f"Expected indices of -1 or 0 to {rows - 1}, got {index} at token {token}, slot {slot}."
        )
        self.token, self.slot, self.index = token, slot, index


class CountOutOfRange(Nvfp4Error):
    """A token claims more slots than its list of indices has, or fewer than none."""

    def __init__(self, token: int, count: int, slots: int) -> None:
        super().__init__(f"Expected counts of 0 to {slots}, got {count} at token {token}.")
        self.token, self.count = token, count


class WrongValue(Nvfp4Error):
    """A number or choice outside of what the function defines."""

    def __init__(self, name: str, expected: str, given: object) -> None:
        super().__init__(f"Expected {name} {expected}, got {given!r}.")
        self.name = name


class NoCompiler(Nvfp4Error):
    """The native code is not compiled yet and no C++ compiler is here."""

    def __init__(self, tried: str, folders: str) -> None:
        super().__init__(
            f"Expected a compiled nvfp4 library in {folders}, or a C++ compiler ($CXX or one of "
            f"{tried}), found neither. Install g++ 12 or newer, or run "
            "`python -m nvfp4.native.build` where one is and copy the library it names."
        )


class BuildFailed(Nvfp4Error):
    """The compiler refused the sources or the folder for the library cannot be written."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"Expected {command!r} to build the nvfp4 library, got: {reason}")
        self.reason = reason


class IsaUnsupported(Nvfp4Error):
    """This processor lacks the instructions that were asked for."""

    def __init__(self, asked: str, supported: str) -> None:
        super().__init__(f"Expected one of this processor's paths ({supported}), got {asked!r}.")
