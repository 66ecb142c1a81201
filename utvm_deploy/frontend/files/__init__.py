"""What a model's file has, before its operators are read."""
