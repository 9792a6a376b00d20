"""The public API of Millrace: who calls, what is asked, where it goes, what it cost.

One POST from the socket to the last token: `edge/app.py` (route), `keys.py` (who),
`request_body.py` (what), `edge/exchange.py` (the relay), `choose.py` and `upstreams.py` (where),
`relay.py` (usage read from the passing bytes), `spool.py` (the usage event, on disk before the last
byte), `publish.py` (to JetStream).
"""
