"""Tool calls that arrive whole, valid and declared; structured answers by the same machinery.

    requests.py   what a client asked for, checked, as an OutputPlan
    schema/       client schemas in one normal form
    formats/      how each model family writes calls, as tables
    grammar/      plan and format as a grammar that masks sampling
    parser/       the model's output as reasoning, content and calls
    guard.py      the last check before a call or a structured answer leaves

Invariant: a call that leaves names a declared tool and validates against the client's own schema;
everything else becomes a Fault, never a silent change.
"""
