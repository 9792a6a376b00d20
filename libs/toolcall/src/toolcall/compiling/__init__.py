"""Does a grammar compile, and in time: asked of a process of its own, before an engine sees it."""
