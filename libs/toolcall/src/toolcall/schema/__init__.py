"""Client JSON Schemas: their check, their normal form, and what no grammar can enforce."""
