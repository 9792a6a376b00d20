"""Workers on one host share nothing by accident."""

import psutil


def listening(pid: int) -> set[str]:
    """Names of the unix sockets that a worker's processes listen on."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    found = {c.laddr for process in family for c in process.net_connections(kind="unix")}
    return {name for name in found if name and "rpc_port" in name}


def test_every_worker_has_a_lookup_socket_of_its_own(stack):
    """With one for both, a lookup went to the other worker and was lost when that one died."""
    processes = stack.processes()
    prefill, decode = listening(processes["prefill-1"]), listening(processes["decode-1"])

    assert prefill
    assert decode
    assert not prefill & decode
