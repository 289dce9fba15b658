"""From attributes to few levels: bins, coarsenings, noisy histograms, the order of attributes."""
