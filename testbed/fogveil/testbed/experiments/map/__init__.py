"""The map of where PARL works: its points, their evaluation, and the page that shows them."""
