"""Starts, watches and stops the processes of a local stack. The services know nothing of it.

Reading order: `processes` lists what runs, `supervise` keeps it running, `up` and `down` are the
two commands.
"""
