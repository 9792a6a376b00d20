"""The string formats that are enforced, each as one regular expression in Python's dialect.

The grammar is translated from these expressions and the guard matches them, so the two never
disagree about a format. A format that is not in the table is an annotation: nothing checks it.
Every expression is anchored, spells digits as [0-9] (not \\d, which is wider in Python), and needs
nothing that a regular language lacks; 29 February is allowed in every year for that reason.
"""

_DATE = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|[12][0-9]))"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:(?:[0-5][0-9]|60)(?:\.[0-9]{{1,9}})?(?:[Zz]|[+-]{_CLOCK})"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LOCAL_PART = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_HOST_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"

FORMATS: dict[str, str] = {
    "date": rf"^{_DATE}\Z",
    "time": rf"^{_TIME}\Z",
    "date-time": rf"^{_DATE}[Tt]{_TIME}\Z",
    "uuid": r"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\Z",
    "ipv4": rf"^{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}\Z",
    "email": rf"^{_LOCAL_PART}(?:\.{_LOCAL_PART})*@{_HOST_LABEL}(?:\.{_HOST_LABEL})*\Z",
}
"""RFC 3339 for dates and times (an offset is required), RFC 4122, RFC 2673, RFC 5321 dot-atoms."""
