"""What each target says of itself: the forms of its facts."""
