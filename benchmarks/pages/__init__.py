"""The tables and plots of a benchmark, and the document that shows them."""
