"""Settings: declared once with help, bounds and choices; one loop refuses the rest."""
