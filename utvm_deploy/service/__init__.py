"""Boards and jobs for a team: the server, its workers, its clients."""
