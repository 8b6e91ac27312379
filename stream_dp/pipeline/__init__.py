"""The stream: records in, commits, releases. Only ``app`` knows Faust."""
