"""Identifiers: UUIDv7, so that ids sort by time and a table partitions by its key."""

import os
import socket

import uuid_utils


def new_request_id() -> str:
    """A new UUIDv7 in its canonical text form (RFC 9562, section 5.7)."""
    return str(uuid_utils.uuid7())


def new_instance(service: str) -> str:
    """A name for this process start: readable, unique, without dots (it is part of a NATS key)."""
    host = socket.gethostname().split(".")[0]
    return f"{service}-{host}-{os.getpid()}-{str(uuid_utils.uuid7())[-6:]}"
