"""The queries that the door answers, each a value with its sensitivity and the proof.

    of coded tables
        PartitionCounts     rows in each joint part of some attributes
        ViolatingPairs      violating pairs of random matchings
        ViolationMatrix     violations of each constraint by each row of a sample
        CandidateScores     distances of joint tables from their expected counts
        PairScores          the same of all pairs of attributes at once
        GradientSum         clipped gradients of a Poisson sample, summed
        Distances           distances of joint tables from what is expected, in rows
        Entropies           entropies of attributes and pairs, for a public number of rows
        SeededCandidates    records made from random rows, and how many rows could have made each
    of raw columns, whose domains are not known yet
        RowCount            rows
        BucketCounts        rows in each part of a public partition of one column
        TextCounts          rows of each text of one column

A query is answered by ``door.answer(query, mechanism, label)``. It states how far one privacy unit
can change its exact answer; the mechanism draws noise for that, and names the event. Its law is in
tests/laws, beside a broken twin that the law must catch.
"""
