"""What a board file says, as data: its reader, its facts, and which of it needs trust."""
