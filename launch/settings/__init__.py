"""A run's settings: declared once, parsed, checked before any process starts."""
