"""The bench of tool calls: one judge a file, each returns figures; most judges are not ours."""
