"""The pages that the server makes."""
