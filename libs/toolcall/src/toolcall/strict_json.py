"""JSON text read without the liberties of Python's json: no NaN, no key twice, no half pairs."""

import json
from collections import Counter
from typing import Any, NoReturn

from toolcall.errors import ToolCallError
from toolcall.refusals import shown


class NotStrictJson(ToolCallError):
    """The text is not JSON, or says one thing twice."""


def read_json(text: str) -> Any:
    """The value that the text spells. Raises NotStrictJson with what is wrong, and where."""
    try:
        text.encode()
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        raise NotStrictJson("half a surrogate pair, which is no character") from error
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise NotStrictJson("nested too deeply") from error
    except ValueError as error:
        # Python reads no integer of more than 4300 digits.
        raise NotStrictJson("a number with too many digits") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise NotStrictJson(f"the key {shown(twice)} twice in one object")
    return found


def _refuse(constant: str) -> NoReturn:
    raise NotStrictJson(f"{constant}, which is not JSON")
