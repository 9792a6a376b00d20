"""The gateway between real neighbours: NATS, Postgres, billing, health, and a scripted upstream."""
