"""Where messages become domain types and errors become replies: the admin API (HTTP) and gRPC."""
