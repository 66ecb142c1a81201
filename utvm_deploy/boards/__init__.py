"""What a board file says, as data: its reader, its facts, and which parts need trust."""
