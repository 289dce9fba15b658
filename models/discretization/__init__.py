"""From attributes to few levels: bins, coarsenings, noisy histograms, and the order of attributes."""
