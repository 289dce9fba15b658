"""Records made from seeds under plausible deniability, and the Bayesian network that makes them.

Source: Bindschaedler, Shokri, Gunter, "Plausible Deniability for Privacy-Preserving Data Synthesis"
    (VLDB 2017).
"""
