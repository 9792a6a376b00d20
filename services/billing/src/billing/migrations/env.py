"""Alembic's entry: runs the migrations on the connection that `store/database.py` hands over."""

from alembic import context

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Start `python -m billing`: it migrates its database by itself.")
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
