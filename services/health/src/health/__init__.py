"""Who is there, and where requests may go: registry, service states, cordons, the route table."""
