"""Version 3 of the Postgres frontend/backend protocol, from the server's side."""
