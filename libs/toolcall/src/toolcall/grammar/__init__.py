"""Grammars in xgrammar's EBNF (GBNF with Token and ExcludeToken), written from plan and format."""
