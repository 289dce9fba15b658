"""The empirical audit: how much a release's answers reveal of one unit, bounded from below.

    likelihood   how likely each noisy answer is, given the exact answers of a table
    doors        the doors to two neighbouring tables, of which one is fitted
    tables       neighbouring tables that are chosen to hurt
    trials       releases of either table on the real path, many times
    kept         trials made by processes and kept, so that a command goes on where it ended
    bounds       what the losses of all trials show, beside what the plan claims
    rows         attacks on the synthetic rows alone, which are reported and judge nothing
    design       which methods, units, relations and budgets are audited together

Accounting proves a ceiling. The audit runs what a release runs on tables that it makes itself, so
nothing that it touches is sensitive, and looks for a release that reveals more.
"""
