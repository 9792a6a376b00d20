"""How each model family writes reasoning and tool calls: tables, detection, rendering."""
