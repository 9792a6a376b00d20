"""What the services share on the wire: subjects, headers, ids, connections, membership.

No service logic lives here: a module that only one service needs belongs to that service.
"""
