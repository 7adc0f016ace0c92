"""An actor's whole loop against Acme's own."""
