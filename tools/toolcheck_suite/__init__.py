"""The conformance suite of tool calls, and `./tools/toolcheck`, which runs it against a URL.

    notation.py      model output as YAML writes it: text and control tokens
    cases.py         tests/toolcall/cases/*.yaml as dataclasses
    answers.py       what a client has after the last byte, whole or folded from a stream
    client.py        any OpenAI-compatible URL, asked both ways
    rules.py         the rules of an answer, and the verdict on one
    live.py          checks that any model must pass
    requests.py      requests that must be refused
    scripted.py      cases whose output the endpoint's engine replays
    report.py        the outcome for people and as one JSON line

Nothing here imports the platform's own code: the suite judges it, and other servers too. Invariant:
a check that could not judge says so; it never counts as passed.
"""
