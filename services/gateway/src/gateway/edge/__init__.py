"""Messages into domain types, outcomes into replies; decisions live in the verb files beside it."""
