"""What finished runs say: curves, measures and the pages made of them."""
